#include "kernels/logit_stats.h"

#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/logit_stats.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

// After foreach_target, as it is compiled per target too.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float LargestOf(const float* x, size_t n) {
  constexpr hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  float largest = -std::numeric_limits<float>::infinity();
  auto m0 = hn::Set(df, largest), m1 = m0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = hn::Max(m0, hn::LoadU(df, x + i));
    m1 = hn::Max(m1, hn::LoadU(df, x + i + lanes));
  }
  largest = hn::GetLane(hn::MaxOfLanes(df, hn::Max(m0, m1)));
  for (; i < n; ++i) largest = std::max(largest, x[i]);
  return largest;
}

// The first index of `value`, or n.
size_t FirstIndexOf(const float* x, size_t n, float value) {
  constexpr hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto wanted = hn::Set(df, value);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const intptr_t lane = hn::FindFirstTrue(df, hn::Eq(hn::LoadU(df, x + i), wanted));
    if (lane >= 0) return i + static_cast<size_t>(lane);
  }
  while (i < n && x[i] != value) ++i;
  return i;
}

// sum of exp(x - offset), in float64
double SumExp(const float* x, size_t n, float offset) {
  constexpr hn::ScalableTag<double> dd;
  constexpr hn::Rebind<float, decltype(dd)> df_half;
  constexpr hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto subtracted = hn::Set(df, offset);
  auto low = hn::Zero(dd), high = hn::Zero(dd);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto e = hn::Exp(df, hn::Sub(hn::LoadU(df, x + i), subtracted));
    low = hn::Add(low, hn::PromoteTo(dd, hn::LowerHalf(df_half, e)));
    high = hn::Add(high, hn::PromoteTo(dd, hn::UpperHalf(df_half, e)));
  }
  double sum = hn::GetLane(hn::SumOfLanes(dd, hn::Add(low, high)));
  for (; i < n; ++i) sum += std::exp(static_cast<double>(x[i] - offset));
  return sum;
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(LargestOf);
HWY_EXPORT(FirstIndexOf);
HWY_EXPORT(SumExp);

LogitStats ComputeLogitStats(std::span<const float> logits) {
  LogitStats stats;
  if (logits.empty()) return stats;
  const size_t n = logits.size();
  stats.max = HWY_DYNAMIC_DISPATCH(LargestOf)(logits.data(), n);
  const size_t first = HWY_DYNAMIC_DISPATCH(FirstIndexOf)(logits.data(), n, stats.max);
  stats.argmax = first < n ? static_cast<uint32_t>(first) : 0;  // n: every logit is NaN
  stats.log_sum_exp = stats.max;
  if (std::isfinite(stats.max)) {
    stats.log_sum_exp += std::log(HWY_DYNAMIC_DISPATCH(SumExp)(logits.data(), n, stats.max));
  }
  return stats;
}

}  // namespace spa
#endif  // HWY_ONCE
