// Finds added tokens written out in text: leftmost first, then longest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "text/byte_pair_encoder.h"

namespace spa {

class AddedTokenFinder {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    TokenId id = -1;  // -1: nothing found, begin and end are the end of the text
  };

  AddedTokenFinder() : nodes_(1) {}
  void Add(std::string_view content, TokenId id);
  Match Find(std::string_view text, size_t from) const;

 private:
  struct Node {
    std::vector<std::pair<char, uint32_t>> children;  // few: added tokens share their beginnings
    TokenId id = -1;                                  // of the token that ends here
  };
  const uint32_t* FindChild(const Node& node, char byte) const;

  std::vector<Node> nodes_;  // a trie; the root is the first
};

}  // namespace spa
