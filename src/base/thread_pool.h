// One fixed set of worker threads. ParallelFor is the only way the engine uses more than one core:
// it hands out task indices, never parts of a sum, so results do not depend on the thread count.
// One caller at a time; calls do not nest. The caller waits for tasks, not for workers: when the
// system gives a worker no core, the caller does that worker's share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace spa {

class ThreadPool {
 public:
  // num_threads counts the calling thread; 0 means one per available core.
  explicit ThreadPool(size_t num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t num_threads() const { return workers_.size() + 1; }

  // Calls fn(task) or fn(task, thread) for every task in [0, num_tasks), in any order, and returns
  // when all are done; throws what the first of them to fail threw. `thread` is in
  // [0, num_threads()): an index for per-thread scratch.
  template <typename Fn>
  void ParallelFor(size_t num_tasks, const Fn& fn) {
    const auto call = [](const void* context, size_t task, size_t thread) {
      const Fn& f = *static_cast<const Fn*>(context);
      if constexpr (std::is_invocable_v<const Fn&, size_t, size_t>) {
        f(task, thread);
      } else {
        f(task);
      }
    };
    Run(num_tasks, call, &fn);
  }

 private:
  using Call = void (*)(const void* context, size_t task, size_t thread);
  void Run(size_t num_tasks, Call call, const void* context);
  void WorkerLoop(size_t thread);

  // Takes one task of the current job and runs it; false if none is left.
  bool RunOneTask(size_t thread);

  std::vector<std::thread> workers_;
  // The job. Written only while no task of it can be taken or is running.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  size_t num_tasks_ = 0;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // of the task that set failed_
  std::atomic<bool> stop_{false};
  // Upper half: number of the job; lower half: its tasks not taken yet. Taking a task is one
  // compare-and-swap, so a thread that wakes late finds either a task of the running job or none.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<size_t> done_tasks_{0};
};

// Cores this process may run on.
size_t NumCores();

}  // namespace spa
