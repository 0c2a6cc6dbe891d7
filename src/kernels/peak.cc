#include "kernels/peak.h"

#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/matrix.h"

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Runs `rounds` rounds of kChains independent fused multiply-adds; returns the operations done.
double RunFmas(size_t rounds, float* sink) {
  constexpr hn::ScalableTag<float> df;
  constexpr size_t kChains = 12;  // more than latency times throughput of any current processor
  hn::Vec<decltype(df)> acc[kChains];
  for (size_t i = 0; i < kChains; ++i) acc[i] = hn::Set(df, static_cast<float>(i));
  const auto a = hn::Set(df, 0.999f + sink[0]);
  const auto b = hn::Set(df, 0.001f + sink[0]);
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < kChains; ++i) acc[i] = hn::MulAdd(acc[i], a, b);
  }
  auto sum = acc[0];
  for (size_t i = 1; i < kChains; ++i) sum = hn::Add(sum, acc[i]);
  sink[1] = hn::GetLane(hn::SumOfLanes(df, sum));
  return 2.0 * static_cast<double>(rounds * kChains * hn::Lanes(df));
}

// num: a multiple of 4 vectors
uint32_t ReadAll(const uint32_t* from, size_t num) {
  constexpr hn::ScalableTag<uint32_t> d;
  const size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
  for (size_t i = 0; i < num; i += 4 * lanes) {
    s0 = hn::Xor(s0, hn::Load(d, from + i));
    s1 = hn::Xor(s1, hn::Load(d, from + i + lanes));
    s2 = hn::Xor(s2, hn::Load(d, from + i + 2 * lanes));
    s3 = hn::Xor(s3, hn::Load(d, from + i + 3 * lanes));
  }
  return hn::GetLane(hn::Xor(hn::Xor(s0, s1), hn::Xor(s2, s3)));
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(RunFmas);
HWY_EXPORT(ReadAll);

namespace {

// The shortest of several runs: on a shared machine the others were disturbed.
template <typename Fn>
double BestSeconds(int runs, const Fn& fn) {
  double best = 1e30;
  for (int run = 0; run < runs; ++run) {
    const auto start = std::chrono::steady_clock::now();
    fn();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return best;
}

}  // namespace

double MeasureFmaPeakGflops(ThreadPool& pool) {
  // A fraction of a millisecond: on a crowded machine longer runs are all interrupted.
  constexpr size_t kRounds = 100'000;
  double operations = 0.0;
  const double seconds = BestSeconds(100, [&] {
    pool.ParallelFor(pool.num_threads(), [&](size_t task) {
      float sink[2] = {};
      const double done = HWY_DYNAMIC_DISPATCH(RunFmas)(kRounds, sink);
      if (task == 0) operations = done;
    });
  });
  return operations * static_cast<double>(pool.num_threads()) / seconds * 1e-9;
}

double MeasureReadBandwidth(ThreadPool& pool) {
  constexpr size_t kTasks = 192;
  constexpr size_t kTaskWords = 512 * 1024;  // 2 MB each
  Mat<uint32_t> buffer(kTasks, kTaskWords);
  buffer.Fill(1);
  std::atomic<uint32_t> sink{0};
  const double seconds = BestSeconds(5, [&] {
    pool.ParallelFor(kTasks, [&](size_t task) {
      sink ^= HWY_DYNAMIC_DISPATCH(ReadAll)(buffer.Row(task), kTaskWords);
    });
  });
  return static_cast<double>(kTasks * kTaskWords * sizeof(uint32_t)) / seconds * 1e-9;
}

}  // namespace spa
#endif  // HWY_ONCE
