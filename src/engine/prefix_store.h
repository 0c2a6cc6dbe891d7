// Keys and values of prompts and answers that have been computed, for requests that begin with the
// same tokens: the next turn of a chat, another question behind the same instructions. Where a row
// sees no block after its own they are exactly what the request would compute itself, so its answer
// is the same, bit for bit; under any other attention nothing is reused. What was used least
// recently is dropped first. Not thread-safe.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "decode/generation.h"

namespace spa {

class PrefixStore {
 public:
  // `limit`: bytes it may hold; 0: it holds nothing.
  explicit PrefixStore(size_t limit) : limit_(limit) {}

  // Copies the longest beginning of the prompt that is held, or that one of `running` has computed,
  // into a generation that has not begun, and notes its length there.
  void Adopt(Generation& generation, std::span<const std::unique_ptr<Generation>> running,
             ThreadPool& pool);
  // Takes the finished blocks of a generation that will not go on, prompt and answer. It must be
  // between two steps.
  void Keep(std::unique_ptr<Generation> generation, ThreadPool& pool);
  // False if there is nothing to drop.
  bool DropOldest();

  size_t size() const { return kept_.size(); }
  size_t bytes() const { return bytes_; }
  size_t dropped() const { return dropped_; }  // so far, for want of memory

 private:
  struct Kept {
    std::unique_ptr<SequenceState> state;
    size_t prompt_length = 0;  // of the request it was computed for: blocks may be counted from it
    std::string cache;
  };

  size_t limit_;
  std::list<Kept> kept_;  // the one used last is in front
  size_t bytes_ = 0;
  size_t dropped_ = 0;
};

}  // namespace spa
