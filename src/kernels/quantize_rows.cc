#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/panels.h"
#include "kernels/parallel_rows.h"

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 8>;
using DI = hn::Repartition<int32_t, DF>;

void QuantizeGroup(const float* HWY_RESTRICT x, ActivationGroup& group) {
  constexpr DF df;
  constexpr DI di;
  constexpr hn::Rebind<int8_t, DI> d8;
  const size_t lanes = hn::Lanes(df);
  auto max = hn::Zero(df);
  for (size_t i = 0; i < kGroup; i += lanes) max = hn::Max(max, hn::Abs(hn::LoadU(df, x + i)));
  const float largest = hn::GetLane(hn::MaxOfLanes(df, max));
  // Below this the reciprocal overflows; such inputs are zeros for any model.
  const bool is_zero = !(largest > 1e-30f);
  const auto inverse = hn::Set(df, is_zero ? 0.0f : 127.0f / largest);
  group.scale = is_zero ? 0.0f : largest / 127.0f;

  HWY_ALIGN int32_t halves[2][8] = {};  // lane j: sum of inputs j, j + lanes, ... of a half group
  for (size_t half = 0; half < 2; ++half) {
    auto sum = hn::Zero(di);
    for (size_t i = half * kGroup / 2; i < (half + 1) * kGroup / 2; i += lanes) {
      const auto q = hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), inverse));
      hn::StoreU(hn::DemoteTo(d8, q), d8, group.q + i);
      sum = hn::Add(sum, q);
    }
    hn::Store(sum, di, halves[half]);
  }
  int sums[2] = {};   // by half
  int pairs[2] = {};  // by place in the quad
  for (size_t half = 0; half < 2; ++half) {
    for (size_t lane = 0; lane < 8; ++lane) {
      sums[half] += halves[half][lane];
      pairs[lane / 2 % 2] += halves[half][lane];
    }
  }
  for (size_t half = 0; half < 2; ++half) {
    group.sums[half] = static_cast<int16_t>(sums[half]);
    group.zero4[half] = static_cast<int16_t>(-kZeroPoint4 * pairs[half]);
  }
  group.scaled_sum = group.scale * static_cast<float>(sums[0] + sums[1]);
}

// groups: every kTileRows-th is of this row
void QuantizeRow(const float* x, size_t num_groups, ActivationGroup* groups) {
  for (size_t g = 0; g < num_groups; ++g) QuantizeGroup(x + g * kGroup, groups[g * kTileRows]);
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(QuantizeRow);

void QuantizeRows(MatView<const float> x, Activations::Int8Rows& out, ThreadPool& pool) {
  out.num_groups = x.cols / kGroup;
  out.tiles.Resize((x.rows + kTileRows - 1) / kTileRows, out.num_groups * kTileRows);
  ParallelRows(pool, x.rows, x.cols, [&](size_t row) {
    HWY_DYNAMIC_DISPATCH(QuantizeRow)
    (x.Row(row), out.num_groups, out.tiles.Row(row / kTileRows) + row % kTileRows);
  });
}

}  // namespace spa
#endif  // HWY_ONCE
