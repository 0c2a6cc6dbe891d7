#include "base/thread_pool.h"

#include <sched.h>

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

// A step issues jobs a few microseconds apart: spin that long before sleeping in the kernel.
constexpr int kSpins = 4000;

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
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(size_t num_tasks, Call call, const void* context) {
  if (workers_.empty() || num_tasks <= 1) {
    for (size_t task = 0; task < num_tasks; ++task) call(context, task, 0);
    return;
  }
  call_ = call;
  context_ = context;
  num_tasks_ = num_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  busy_workers_.store(workers_.size(), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  Drain(0);
  for (size_t busy = busy_workers_.load(std::memory_order_acquire); busy != 0;
       busy = busy_workers_.load(std::memory_order_acquire)) {
    WaitWhileEqual(busy_workers_, busy);
  }
}

void ThreadPool::Drain(size_t thread) {
  for (size_t task = next_task_.fetch_add(1, std::memory_order_relaxed); task < num_tasks_;
       task = next_task_.fetch_add(1, std::memory_order_relaxed)) {
    call_(context_, task, thread);
  }
}

void ThreadPool::WorkerLoop(size_t thread) {
  uint64_t seen = 0;
  while (true) {
    WaitWhileEqual(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_acquire)) return;
    Drain(thread);
    busy_workers_.fetch_sub(1, std::memory_order_acq_rel);
    busy_workers_.notify_one();
  }
}

}  // namespace spa
