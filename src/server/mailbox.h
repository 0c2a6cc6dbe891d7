// A queue of events from the scheduler to a request's HTTP thread. A request may have several
// generations (choices); events say which.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/token.h"
#include "decode/generation.h"
#include "engine/likelihood.h"
#include "transformer/row_set.h"

namespace spa {

// The canvas after a step, for the page.
struct Frame {
  size_t step = 0;  // 1 after the first
  size_t prompt_tokens = 0;
  size_t block_begin = 0, block_end = 0;  // of the step, in positions of the canvas
  struct Cell {
    TokenId token = -1;  // -1: nothing known yet
    bool settled = false;
    bool given = false;        // not the model's
    float confidence = -1.0f;  // -1: none
  };
  std::vector<Cell> cells;   // one per position of the canvas
  std::vector<RowSet> rows;  // per layer, the rows of the sequence that were recomputed
};

enum class Ending {
  kStop,      // an end token or a stop string
  kLength,    // the canvas or max_tokens
  kInvalid,   // the request cannot run; the message says why
  kTooLarge,  // it needs more memory than the server has for all
  kFailed,    // internal error
  kTimeout,   // its time was up
  kShutdown,  // the server is going down
};

struct Event {
  enum class Kind { kStarted, kText, kFrame, kProgress, kEnd };
  Kind kind = Kind::kText;
  size_t choice = 0;
  std::string text = {};          // kText: final text; kEnd: error message, if any
  Frame frame = {};               // kFrame
  size_t layer = 0, layers = 0;   // kProgress: layers done of a long step
  std::string reason = {};        // kEnd: the cause, for the log only
  Ending ending = Ending::kStop;  // kEnd
  GenerationStats stats = {};     // kEnd
  // kEnd of a prompt that was scored: of every token but the first, and of the one predicted.
  std::vector<TokenLikelihood> scores = {};
  std::vector<std::string> gaps = {};  // kEnd of a text with gaps: what fills them

  bool finished() const { return ending == Ending::kStop || ending == Ending::kLength; }  // kEnd
};

// How long a thread waits for events before it checks whether its client is still connected.
constexpr std::chrono::milliseconds kLook{50};

class Mailbox {
 public:
  void Post(Event event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    arrived_.notify_one();
  }

  // The events so far; waits up to `timeout` for one.
  std::vector<Event> Take(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, timeout, [&] { return !events_.empty(); });
    return std::exchange(events_, {});
  }

  // The client has gone: its generations end before their next step.
  void Cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Event> events_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace spa
