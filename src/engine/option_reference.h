// All options of decoding and of the caches, for programs (JSON) and for people (Markdown): made
// from the tables the options are declared in.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace spa {

// {"decode": [option...], "caches": [{"name", "help", "options": [option...]}...]}; an option has
// name, type, default, help and min, max or choices.
nlohmann::ordered_json OptionsJson();

// docs/options.md.
std::string OptionsMarkdown();

}  // namespace spa
