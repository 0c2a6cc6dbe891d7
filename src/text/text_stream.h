// Tokens settle out of order; people read from the left. Keeps the longest settled run from the
// start of the answer and gives out its text as it grows: whole UTF-8 characters only, never text
// that could change later.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace spa {

class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // Takes the tokens that follow those already taken; returns the new text (possibly empty).
  // Control tokens add nothing.
  std::string Append(const std::vector<TokenId>& ids);
  // The rest: bytes of a character that never completed become U+FFFD.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  // at most 3 bytes of an unfinished character
};

// Replaces every invalid byte sequence by U+FFFD (one per maximal invalid subpart).
std::string ToValidUtf8(std::string_view bytes);

}  // namespace spa
