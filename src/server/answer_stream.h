// The text of an answer as its prefix becomes final: stop strings are found wherever they fall
// between tokens, at most `max_tokens` tokens are returned, and text that may be the beginning of a
// stop string is held back. Streamed or not, an answer goes through here.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/token.h"
#include "text/text_stream.h"

namespace spa {

class AnswerStream {
 public:
  // The tokenizer must outlive the stream. Stop strings are valid UTF-8 and not empty.
  AnswerStream(const Tokenizer& tokenizer, std::vector<std::string> stops, size_t max_tokens);

  // `settled`: all tokens of the answer's settled run, from its start. `ended`: nothing follows
  // them, because of an end token (`by_end_token`) or because the canvas is full. Returns new text.
  std::string Advance(std::span<const TokenId> settled, bool ended, bool by_end_token);

  bool finished() const { return finished_; }
  bool stopped() const { return stopped_; }  // by an end token or a stop string, not by length
  size_t num_tokens() const { return num_tokens_; }

 private:
  // Looks for a stop string in pending_; returns the text that is final.
  std::string Release();
  std::string Finish(bool stopped);

  TextStream text_;
  std::vector<std::string> stops_;
  size_t max_tokens_;
  size_t num_tokens_ = 0;
  std::string pending_;  // held back: may begin a stop string
  bool finished_ = false, stopped_ = false;
};

}  // namespace spa
