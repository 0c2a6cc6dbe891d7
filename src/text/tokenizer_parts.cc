#include "text/tokenizer_parts.h"

#include <algorithm>

namespace spa {

std::optional<std::pair<std::string_view, std::string_view>> SplitMerge(std::string_view merge) {
  const size_t space = merge.find(' ');
  if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
    return std::nullopt;
  }
  return std::pair(merge.substr(0, space), merge.substr(space + 1));
}

void MakeMaskControl(TokenizerParts* parts) {
  if (!parts->mask) return;
  for (auto& token : parts->added) {
    if (token.id != *parts->mask) continue;
    token.control = true;
    return;
  }
  const auto entry = std::find_if(parts->vocab.begin(), parts->vocab.end(),
                                  [&](const auto& token) { return token.id == *parts->mask; });
  if (entry == parts->vocab.end()) return;
  parts->added.push_back({entry->id, std::string(entry->text), true});
  parts->vocab.erase(entry);
}

}  // namespace spa
