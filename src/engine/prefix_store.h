// Keeps keys and values of prompts and answers for requests that begin with the same tokens, such
// as the next turn of a chat or another question after the same instructions. If no row sees a
// block after its own, they are exactly what the request would compute itself, so its answer is the
// same bit for bit. Under any other attention nothing is reused. The least recently used are
// dropped first. Not thread-safe.
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
  // `limit`: bytes it may hold; 0 turns it off.
  explicit PrefixStore(size_t limit) : limit_(limit) {}

  // Copies the longest beginning of the prompt that is held, or that one of `running` has computed,
  // into a generation that has not begun, and notes its length there.
  void Adopt(Generation& generation, std::span<const std::unique_ptr<Generation>> running,
             ThreadPool& pool);
  // Takes the finished blocks, prompt and answer, of a generation that will not run again. It must
  // be between two steps.
  void Keep(std::unique_ptr<Generation> generation, ThreadPool& pool);
  // False if there is nothing to drop.
  bool DropOldest();

  size_t size() const { return kept_.size(); }
  size_t bytes() const { return bytes_; }
  size_t dropped() const { return dropped_; }  // so far, to free memory

 private:
  struct Kept {
    std::unique_ptr<SequenceState> state;
    size_t prompt_length = 0;  // of the request it was computed for: blocks may be counted from it
    std::string cache;
  };

  size_t limit_;
  std::list<Kept> kept_;  // most recently used first
  size_t bytes_ = 0;
  size_t dropped_ = 0;
};

}  // namespace spa
