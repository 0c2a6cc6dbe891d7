// The machine's limits, measured once per process, and counters that compare with them.
// Best-of-several and ratios are what survives on a shared machine. On a crowded one set
// SPA_BENCH_THREADS=1: a single thread is timed by the processor time it got.
#pragma once

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/matrix.h"
#include "base/thread_pool.h"
#include "kernels/peak.h"

namespace spa {

inline ThreadPool& BenchPool() {
  const char* threads = std::getenv("SPA_BENCH_THREADS");
  static ThreadPool pool(threads == nullptr ? 0 : std::strtoul(threads, nullptr, 10));
  return pool;
}

inline double Seconds() {
  if (BenchPool().num_threads() == 1) {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double FmaPeak() {
  static const double peak = MeasureFmaPeakGflops(BenchPool());
  return peak;
}

inline double ReadBandwidth() {
  static const double bandwidth = MeasureReadBandwidth(BenchPool());
  return bandwidth;
}

// Runs fn under the benchmark loop and reports the rate of its fastest run: operations beside the
// FMA peak, bytes beside the read bandwidth.
template <typename Fn>
void RunAndCompare(benchmark::State& state, double operations, double bytes, const Fn& fn) {
  FmaPeak();
  double best = 1e30;
  for (auto _ : state) {
    const double start = Seconds();
    fn();
    best = std::min(best, Seconds() - start);
  }
  if (operations > 0) {
    state.counters["gops"] = operations / best * 1e-9;
    state.counters["x_fma_peak"] = operations / best * 1e-9 / FmaPeak();
  }
  if (bytes > 0) {
    state.counters["gb_per_s"] = bytes / best * 1e-9;
    state.counters["x_read_bandwidth"] = bytes / best * 1e-9 / ReadBandwidth();
  }
}

inline Mat<float> Filled(size_t rows, size_t cols) {
  Mat<float> mat(rows, cols);
  for (size_t i = 0; i < rows * cols; ++i) {
    mat.data()[i] = static_cast<float>(i * 2654435761u % 2048) / 1024.0f - 1.0f;
  }
  return mat;
}

}  // namespace spa
