#include "kernels/rows.h"

#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "kernels/parallel_rows.h"

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float Cosine(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t n) {
  constexpr hn::ScalableTag<double> dd;
  constexpr hn::Rebind<float, decltype(dd)> df;
  auto sum_ab = hn::Zero(dd), sum_aa = hn::Zero(dd), sum_bb = hn::Zero(dd);
  size_t i = 0;
  for (; i + hn::Lanes(dd) <= n; i += hn::Lanes(dd)) {
    const auto x = hn::PromoteTo(dd, hn::LoadU(df, a + i));
    const auto y = hn::PromoteTo(dd, hn::LoadU(df, b + i));
    sum_ab = hn::MulAdd(x, y, sum_ab);
    sum_aa = hn::MulAdd(x, x, sum_aa);
    sum_bb = hn::MulAdd(y, y, sum_bb);
  }
  double ab = hn::GetLane(hn::SumOfLanes(dd, sum_ab));
  double aa = hn::GetLane(hn::SumOfLanes(dd, sum_aa));
  double bb = hn::GetLane(hn::SumOfLanes(dd, sum_bb));
  for (; i < n; ++i) {
    const double x = a[i], y = b[i];
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa == 0.0 || bb == 0.0 ? 0.0f : static_cast<float>(ab / std::sqrt(aa * bb));
}

void AddRow(const float* HWY_RESTRICT src, size_t n, float* HWY_RESTRICT dst) {
  constexpr hn::ScalableTag<float> df;
  size_t i = 0;
  for (; i + hn::Lanes(df) <= n; i += hn::Lanes(df)) {
    hn::StoreU(hn::Add(hn::LoadU(df, dst + i), hn::LoadU(df, src + i)), df, dst + i);
  }
  for (; i < n; ++i) dst[i] += src[i];
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(Cosine);
HWY_EXPORT(AddRow);

void GatherRows(MatView<const float> src, std::span<const uint32_t> rows, MatView<float> dst,
                ThreadPool& pool) {
  SPA_CHECK(dst.rows == rows.size() && dst.cols == src.cols);
  ParallelRows(pool, rows.size(), src.cols, [&](size_t i) {
    std::memcpy(dst.Row(i), src.Row(rows[i]), src.cols * sizeof(float));
  });
}

void ScatterRows(MatView<const float> src, std::span<const uint32_t> rows, MatView<float> dst,
                 ThreadPool& pool) {
  SPA_CHECK(src.rows == rows.size() && dst.cols == src.cols);
  ParallelRows(pool, rows.size(), src.cols, [&](size_t i) {
    std::memcpy(dst.Row(rows[i]), src.Row(i), src.cols * sizeof(float));
  });
}

void AddRows(MatView<const float> src, MatView<float> dst, ThreadPool& pool) {
  SPA_CHECK(dst.rows == src.rows && dst.cols == src.cols);
  ParallelRows(pool, src.rows, src.cols, [&](size_t i) {
    HWY_DYNAMIC_DISPATCH(AddRow)(src.Row(i), src.cols, dst.Row(i));
  });
}

float Cosine(const float* a, const float* b, size_t count) {
  return HWY_DYNAMIC_DISPATCH(Cosine)(a, b, count);
}

void CosineRows(MatView<const float> a, MatView<const float> b, std::span<const uint32_t> rows,
                std::span<float> out, ThreadPool& pool) {
  SPA_CHECK(a.rows == rows.size() && out.size() == rows.size() && a.cols == b.cols);
  ParallelRows(pool, rows.size(), a.cols,
               [&](size_t i) { out[i] = Cosine(a.Row(i), b.Row(rows[i]), a.cols); });
}

std::vector<uint32_t> SmallestK(std::span<const float> values, size_t k) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  if (k >= order.size()) return order;
  const auto key = [&](uint32_t i) {
    return std::isnan(values[i]) ? -std::numeric_limits<float>::infinity() : values[i];
  };
  std::nth_element(
      order.begin(), order.begin() + static_cast<ptrdiff_t>(k), order.end(),
      [&](uint32_t i, uint32_t j) { return key(i) != key(j) ? key(i) < key(j) : i < j; });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace spa
#endif  // HWY_ONCE
