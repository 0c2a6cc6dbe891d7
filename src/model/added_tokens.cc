#include "model/added_tokens.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/mapped_file.h"

namespace spa {

using Json = nlohmann::json;

namespace {

Json ReadObject(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return Json::object();
  const MappedFile file(path);
  CheckJsonDepth(file.text(), path.string());
  // A tokenizer.json holds several hundred thousand small strings that are not needed here.
  const auto wanted = [](int depth, Json::parse_event_t event, Json& value) {
    return !(depth == 1 && event == Json::parse_event_t::key && value == "model");
  };
  Json document = Json::parse(file.text(), wanted, /*allow_exceptions=*/false);
  if (!document.is_object()) throw Error("{} is not a JSON object", path.string());
  return document;
}

}  // namespace

AddedTokens::AddedTokens(const std::filesystem::path& folder) {
  const auto config_path = folder / "tokenizer_config.json";
  const Json config = ReadObject(config_path);
  if (const auto it = config.find("added_tokens_decoder"); it != config.end() && it->is_object()) {
    for (const auto& [key, token] : it->items()) {
      if (token.is_object() && token.contains("content") && token["content"].is_string()) {
        Add(token["content"], std::strtoll(key.c_str(), nullptr, 10), config_path);
      }
    }
  }
  const auto added_path = folder / "added_tokens.json";
  const Json added = ReadObject(added_path);
  for (const auto& [text, id] : added.items()) {
    if (id.is_number_integer()) Add(text, id.get<int64_t>(), added_path);
  }
  if (ids_.empty()) {  // newer folders repeat these in tokenizer_config.json
    const auto tokenizer_path = folder / "tokenizer.json";
    const Json tokenizer = ReadObject(tokenizer_path);
    if (const auto it = tokenizer.find("added_tokens"); it != tokenizer.end() && it->is_array()) {
      for (const Json& token : *it) {
        if (token.is_object() && token.contains("content") && token["content"].is_string() &&
            token.contains("id") && token["id"].is_number_integer()) {
          Add(token["content"], token["id"].get<int64_t>(), tokenizer_path);
        }
      }
    }
  }
  if (auto it = config.find("mask_token"); it != config.end()) {
    const Json& mask = it->is_object() && it->contains("content") ? (*it)["content"] : *it;
    if (mask.is_string()) mask_text_ = mask.get<std::string>();
  }
}

void AddedTokens::Add(const std::string& text, int64_t id, const std::filesystem::path& path) {
  if (id < 0 || id > INT32_MAX) return;  // the tokenizer's reader reports it
  const auto [it, is_new] = ids_.emplace(text, static_cast<TokenId>(id));
  if (!is_new && it->second != id) {
    throw Error("{}: the token {} has the id {}, but {} elsewhere in the folder", path.string(),
                text, id, it->second);
  }
}

std::optional<TokenId> AddedTokens::Find(std::string_view text) const {
  const auto it = ids_.find(text);
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<TokenId> AddedTokens::mask_token() const {
  return mask_text_.empty() ? std::nullopt : Find(mask_text_);
}

}  // namespace spa
