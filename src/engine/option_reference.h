// All decoding and cache options, as JSON and as Markdown, from the tables that declare them.
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
