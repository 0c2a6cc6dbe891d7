// The JSON files of a tokenizer, read into a document, except for the vocabulary and the merges: a
// document of several hundred thousand small strings would take longer to build than the tokenizer
// itself. Internal to tokenizer_hf.cc.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "text/tokenizer_parts.h"

namespace spa {

// Where a tokenizer's long lists are in a JSON file.
enum class JsonLayout {
  kPlain,          // none: everything is wanted as a document
  kTokenizerJson,  // /model/vocab and /model/merges
  kVocabJson,      // the whole file is the vocabulary
};

// The document without the long lists, which `parts` receives; `name` appears in errors.
nlohmann::json LoadTokenizerJson(std::string_view text, const std::string& name, JsonLayout layout,
                                 TokenizerParts* parts);

}  // namespace spa
