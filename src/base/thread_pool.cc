#include "base/thread_pool.h"

#include <sched.h>

#include <utility>

#include "base/error.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace spa {
namespace {

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A step issues jobs a few microseconds apart, so spin that long before sleeping.
constexpr int kSpins = 4000;

constexpr uint64_t kTaskMask = 0xffffffff;
constexpr uint64_t kNextJob = kTaskMask + 1;

template <typename T>
void WaitWhileEqual(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

size_t NumCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    const int count = CPU_COUNT(&set);
    if (count > 0) return static_cast<size_t>(count);
  }
  const unsigned count = std::thread::hardware_concurrency();
  return count > 0 ? count : 1;
}

ThreadPool::ThreadPool(size_t num_threads) {
  if (num_threads == 0) num_threads = NumCores();
  for (size_t thread = 1; thread < num_threads; ++thread) {
    workers_.emplace_back([this, thread] { WorkerLoop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_release);
  ticket_.fetch_add(kNextJob, std::memory_order_release);
  ticket_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(size_t num_tasks, Call call, const void* context) {
  if (workers_.empty() || num_tasks <= 1) {
    for (size_t task = 0; task < num_tasks; ++task) call(context, task, 0);
    return;
  }
  SPA_CHECK(num_tasks <= kTaskMask);
  call_ = call;
  context_ = context;
  num_tasks_ = num_tasks;
  done_tasks_.store(0, std::memory_order_relaxed);
  const uint64_t job = ticket_.load(std::memory_order_relaxed) & ~kTaskMask;
  ticket_.store(job + kNextJob + num_tasks, std::memory_order_release);
  ticket_.notify_all();
  while (RunOneTask(0)) {
  }
  for (size_t done = done_tasks_.load(std::memory_order_acquire); done != num_tasks;
       done = done_tasks_.load(std::memory_order_acquire)) {
    WaitWhileEqual(done_tasks_, done);
  }
  if (failed_.exchange(false, std::memory_order_relaxed)) {
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

bool ThreadPool::RunOneTask(size_t thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if ((ticket & kTaskMask) == 0) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
  // The task is ours, so the job stays until it is done.
  const size_t num_tasks = num_tasks_;
  try {
    call_(context_, num_tasks - (ticket & kTaskMask), thread);
  } catch (...) {
    if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
  }
  if (done_tasks_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_tasks) {
    done_tasks_.notify_one();
  }
  return true;
}

void ThreadPool::WorkerLoop(size_t thread) {
  while (!stop_.load(std::memory_order_acquire)) {
    const uint64_t ticket = ticket_.load(std::memory_order_acquire);
    if (!RunOneTask(thread) && !stop_.load(std::memory_order_acquire)) {
      WaitWhileEqual(ticket_, ticket);
    }
  }
}

}  // namespace spa
