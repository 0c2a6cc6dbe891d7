#include "text/added_token_finder.h"

namespace spa {

const uint32_t* AddedTokenFinder::FindChild(const Node& node, char byte) const {
  for (const auto& [label, child] : node.children) {
    if (label == byte) return &child;
  }
  return nullptr;
}

void AddedTokenFinder::Add(std::string_view content, TokenId id) {
  uint32_t node = 0;
  for (const char byte : content) {
    if (const uint32_t* child = FindChild(nodes_[node], byte)) {
      node = *child;
      continue;
    }
    const auto created = static_cast<uint32_t>(nodes_.size());
    nodes_[node].children.emplace_back(byte, created);
    nodes_.emplace_back();
    node = created;
  }
  nodes_[node].id = id;
}

AddedTokenFinder::Match AddedTokenFinder::Find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    Match longest;
    uint32_t node = 0;
    for (size_t pos = begin; pos < text.size(); ++pos) {
      const uint32_t* child = FindChild(nodes_[node], text[pos]);
      if (child == nullptr) break;
      node = *child;
      if (nodes_[node].id >= 0) longest = {begin, pos + 1, nodes_[node].id};
    }
    if (longest.id >= 0) return longest;
  }
  return {text.size(), text.size(), -1};
}

}  // namespace spa
