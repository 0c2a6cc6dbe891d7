// Tokens settle out of order; people read from the left. Keeps the longest settled run from the
// start of the answer and gives out its text as it grows: whole UTF-8 characters only, never text
// that could change later.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "text/unicode.h"  // ToValidUtf8

namespace spa {

class TextStream {
 public:
  // The tokenizer must outlive the stream.
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // Takes the tokens that follow those already taken; returns the new text (possibly empty).
  // Control tokens add nothing.
  std::string Append(const std::vector<TokenId>& ids);
  // The rest: bytes of a character that never completed become U+FFFD. All texts returned, joined,
  // equal Tokenizer::Decode of all tokens taken. The stream can then be used again.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;  // at most 3 bytes of an unfinished character
};

}  // namespace spa
