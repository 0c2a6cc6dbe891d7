#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace spa {
namespace {

TEST(ThreadPool, EveryTaskRunsExactlyOnce) {
  for (const size_t threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const size_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(tasks);
      pool.ParallelFor(tasks, [&](size_t task, size_t thread) {
        EXPECT_LT(thread, pool.num_threads());
        ++runs[task];
      });
      for (const auto& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, ManyShortJobsAndLateWorkersNeverMixJobs) {
  ThreadPool pool(4);
  std::vector<int> values(8);
  for (int job = 1; job <= 20000; ++job) {
    pool.ParallelFor(values.size(), [&](size_t task) { values[task] = job; });
    for (const int value : values) ASSERT_EQ(value, job);
  }
}

TEST(ThreadPool, ATaskThatThrowsIsHeardOfWhenAllAreDone) {
  for (const size_t threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int job = 0; job < 200; ++job) {
      std::atomic<int> running{0};
      EXPECT_THROW(pool.ParallelFor(64,
                                    [&](size_t task) {
                                      ++running;
                                      if (task % 7 == 3) {
                                        --running;
                                        throw std::runtime_error("task");
                                      }
                                      --running;
                                    }),
                   std::runtime_error);
      EXPECT_EQ(running, 0);
      std::atomic<int> done{0};
      pool.ParallelFor(64, [&](size_t) { ++done; });
      EXPECT_EQ(done, 64) << "the pool goes on";
    }
  }
}

TEST(ThreadPool, WritesOfTasksAreVisibleToTheCaller) {
  ThreadPool pool(3);
  std::vector<size_t> squares(5000);
  pool.ParallelFor(squares.size(), [&](size_t i) { squares[i] = i * i; });
  for (size_t i = 0; i < squares.size(); ++i) ASSERT_EQ(squares[i], i * i);
}

}  // namespace
}  // namespace spa
