// Continuous batching at step granularity: one thread owns the engine and steps all running
// generations together; requests join and leave between steps. Each generation has its own state,
// and numbers do not depend on the batch, so every request gets the answer it would get alone.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/likelihood.h"
#include "engine/memory.h"
#include "engine/runner.h"
#include "server/answer_stream.h"
#include "server/mailbox.h"
#include "server/memory_account.h"
#include "server/metrics.h"

namespace spa {

// One answer to be made, or one prompt to be scored.
struct GenerationTask {
  std::vector<TokenId> prompt;
  Given given;                // a text with gaps (engine/infill.h),
  std::string before, after;  // and its text around the canvas, returned with it
  DecodeOptions decode;
  CacheSpec cache;
  std::vector<std::string> stops;
  size_t max_tokens = 0;
  bool frames = false;  // post a Frame after every step
  // Nothing is decoded: every token after the first is scored, left to right (Estimator::kChain),
  // and if max_tokens is 1 one more is predicted.
  bool score = false;
  std::optional<std::chrono::steady_clock::time_point> deadline;
};

struct SchedulerOptions {
  size_t parallel = 4;  // generations stepped together
  size_t queue = 64;    // generations waiting
  // Bytes that running generations may take together. A request that does not fit now waits; one
  // that never fits is refused.
  size_t memory = std::numeric_limits<size_t>::max();
  // Of these, for keys and values of requests that have ended (PrefixStore); running generations
  // come first. 0: nothing is kept.
  size_t prefix_memory = 0;
  // A step that takes longer than this reports its progress, again and again at this interval.
  std::chrono::milliseconds long_step{500};
  // Called when the model file has changed (ModelFile::CheckUnchanged), after the requests of that
  // step have failed: the server cannot answer any more.
  std::function<void(const std::string& message)> on_model_changed = {};
};

class Scheduler {
 public:
  // Engine and metrics must outlive the scheduler; nothing else may run the engine meanwhile. Tasks
  // that use `cache` do not wait for it to be prepared.
  Scheduler(Engine& engine, const SchedulerOptions& options, SharedCache cache, Metrics& metrics);
  ~Scheduler();

  enum class Admission { kAccepted, kQueueFull, kDraining };
  // All tasks of a request or none. Events of tasks[i] carry choice i.
  Admission Submit(std::vector<GenerationTask> tasks, const std::shared_ptr<Mailbox>& mailbox);

  // Accepts nothing new, gives running tasks at most `grace` to finish, ends the rest with
  // kShutdown.
  void Drain(std::chrono::milliseconds grace);
  bool draining() const { return draining_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    GenerationTask task;
    std::shared_ptr<Mailbox> mailbox;
    size_t choice = 0;
    Clock::time_point submitted, started;
    SharedCache cache;                 // once prepared
    MemoryNeed need;                   // known with the cache
    bool admitted = false;             // `need` is promised to it
    bool waited = false;               // for memory
    Generation* generation = nullptr;  // once running, the runner's
    std::optional<Scorer> scorer;      // once running, of a prompt to be scored
    bool ended = false;
    std::optional<AnswerStream> answer;
    std::vector<float> confidence;  // of settled positions, for frames
  };
  using JobPtr = std::unique_ptr<Job>;

  void Loop();
  // One forward pass for everything in running_.
  void Step();
  // Reports the progress of a long step to streaming clients.
  void TellProgress(size_t layer, size_t layers);
  // Moves waiting jobs to running_ while there is room.
  void Admit();
  // Both end the job and return false if it cannot run. The first determines its memory need.
  bool PrepareJob(Job& job);
  bool StartJob(Job& job);
  // Ends jobs whose client has gone or whose time is up.
  void Sweep(std::deque<JobPtr>& waiting);
  bool ShouldEnd(Job& job);
  void Publish(Job& job);
  void PostText(Job& job, std::string text);  // unless it is empty
  // One forward pass of a prompt that is scored.
  void StepScore(Job& job);
  Frame MakeFrame(Job& job) const;
  // `reason` goes to the log only: clients do not see internals.
  void End(Job& job, Ending ending, std::string message = {}, std::string reason = {});
  // Ends the job because of the exception being handled.
  void EndByException(Job& job);
  // Frees what the job holds, and keeps its keys and values for others.
  enum class Prefix { kKeep, kDrop };
  void Release(Job& job, Prefix prefix);
  // Drops kept prefixes until `need` fits beside the running jobs. False if it never does.
  bool MakeRoom(const MemoryNeed& need);
  void NotePrefixes();
  // Error if preparing the cache would make others wait.
  SharedCache Prepare(const CacheSpec& spec);

  Engine& engine_;
  SchedulerOptions options_;
  Metrics& metrics_;
  MemoryAccount memory_;          // of the loop alone
  PrefixStore prefixes_;          // of the loop alone
  std::mutex mutex_;              // guards waiting_ and busy_
  std::condition_variable wake_;  // something to do
  std::condition_variable idle_;  // nothing left
  std::deque<JobPtr> waiting_;
  bool busy_ = false;              // the loop holds jobs
  std::atomic<bool> stop_{false};  // end everything, now
  std::atomic<bool> draining_{false};
  std::vector<JobPtr> running_;                // of the loop alone
  std::string own_cache_;                      // the server's default
  std::map<std::string, SharedCache> caches_;  // of the loop alone
  Runner runner_;                              // of the loop alone
  Clock::time_point told_;                     // of the loop alone: the step's last progress
  std::thread thread_;
};

}  // namespace spa
