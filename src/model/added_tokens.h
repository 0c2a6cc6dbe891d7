// The tokens a Hugging Face folder adds to its vocabulary, by text. Some families name their mask
// token nowhere else.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/token.h"

namespace spa {

class AddedTokens {
 public:
  // A folder without a tokenizer has none. Throws Error if one text has two ids.
  explicit AddedTokens(const std::filesystem::path& folder);

  std::optional<TokenId> Find(std::string_view text) const;
  std::optional<TokenId> mask_token() const;  // as tokenizer_config.json names it

 private:
  void Add(const std::string& text, int64_t id, const std::filesystem::path& path);

  std::map<std::string, TokenId, std::less<>> ids_;
  std::string mask_text_;
};

}  // namespace spa
