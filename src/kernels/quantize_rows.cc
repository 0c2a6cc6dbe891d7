#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "kernels/byte_dot-inl.h"
#include "kernels/panels.h"
#include "kernels/parallel_rows.h"

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 8>;

float LargestMagnitude(const float* HWY_RESTRICT x, size_t size) {
  constexpr DF df;
  auto max = hn::Zero(df);
  for (size_t i = 0; i < size; i += hn::Lanes(df)) {
    max = hn::Max(max, hn::Abs(hn::LoadU(df, x + i)));
  }
  return hn::GetLane(hn::MaxOfLanes(df, max));
}

// value with the 11 significant bits of a half, but not its range
float RoundToHalf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  bits = (bits + 0xfff + ((bits >> 13) & 1)) & ~uint32_t{0x1fff};
  return std::bit_cast<float>(bits);
}

// Scales are rounded as llama.cpp rounds them. Quantising turns a difference in the last bit into
// one of a whole step, so results only stay near its own if they begin equal.
void QuantizeGroup(const float* HWY_RESTRICT x, size_t scale_span, float largest, bool quads,
                   ActivationGroup& group) {
  constexpr DF df;
  constexpr hn::RebindToSigned<DF> di;
  constexpr hn::Repartition<int16_t, DF> d16;
  constexpr hn::Rebind<int8_t, DF> d8;
  const size_t lanes = hn::Lanes(df);
  // Below this the reciprocal overflows; such inputs are zeros for any model.
  const bool is_zero = !(largest > 1e-30f);
  const float inverse_scale = is_zero ? 0.0f : 127.0f / largest;
  const auto inverse = hn::Set(df, inverse_scale);
  group.scale = is_zero                ? 0.0f
                : scale_span == kGroup ? RoundToHalf(largest / 127.0f)
                                       : 1.0f / inverse_scale;

  auto first = hn::Zero(di), last = hn::Zero(di);  // sums of every lanes-th q of 16 inputs
  for (size_t i = 0; i < kGroup / 2; i += lanes) {
    const auto q0 = hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), inverse));
    const auto q1 = hn::NearestInt(hn::Mul(hn::LoadU(df, x + kGroup / 2 + i), inverse));
    hn::StoreU(hn::DemoteTo(d8, q0), d8, group.q + i);
    hn::StoreU(hn::DemoteTo(d8, q1), d8, group.q + kGroup / 2 + i);
    first = hn::Add(first, q0);
    last = hn::Add(last, q1);
  }
  // Both as 16-bit halves of one vector, then pairs of lanes added: words 4b and 4b + 2 hold the
  // first and the second pair of a quad.
  const auto low_half = hn::Set(di, 0xffff);
  auto both = hn::BitCast(d16, hn::Or(hn::And(first, low_half), hn::ShiftLeft<16>(last)));
  both = hn::Add(both, hn::BitCast(d16, hn::Shuffle2301(hn::BitCast(di, both))));
  HWY_ALIGN int16_t pairs[16];  // enough for 8 lanes
  hn::Store(both, d16, pairs);
  int p00 = pairs[0], p01 = pairs[1], p10 = pairs[4], p11 = pairs[5];
  if (lanes == 8) p00 += pairs[8], p01 += pairs[9], p10 += pairs[12], p11 += pairs[13];
  const int sum = p00 + p01 + p10 + p11;
  const auto word = [](int value) { return static_cast<int16_t>(value); };
  if (scale_span == kGroup) {
    group.scaled_sum = RoundToHalf(largest / 127.0f * static_cast<float>(sum));
    if (quads) {
      group.own_scale_quads = {.zero4 = -kZeroPoint4 * sum, .zero8 = -kZeroPoint8 * sum};
    } else {
      group.own_scale = {
          .zero4 = {word(-kZeroPoint4 * (p00 + p01)), word(-kZeroPoint4 * (p10 + p11))},
          .sums = {word(p00 + p10), word(p01 + p11)}};
    }
  } else {
    group.sum_pair[0] = word(sum);
    if (quads) {
      group.zero6_quads[0] = -kZeroPoint6 * (p00 + p10);
      group.zero6_quads[1] = -kZeroPoint6 * (p01 + p11);
    } else {
      group.zero6[0][0] = word(-kZeroPoint6 * p00);
      group.zero6[0][1] = word(-kZeroPoint6 * p10);
      group.zero6[1][0] = word(-kZeroPoint6 * p01);
      group.zero6[1][1] = word(-kZeroPoint6 * p11);
    }
  }
}

// groups: every kTileRows-th is of this row
void QuantizeRow(const float* x, size_t cols, size_t scale_span, ActivationGroup* groups) {
  const bool quads = SumsQuads();
  for (size_t first = 0; first < cols; first += scale_span) {
    const float largest = LargestMagnitude(x + first, scale_span);
    for (size_t c = first; c < first + scale_span; c += kGroup) {
      QuantizeGroup(x + c, scale_span, largest, quads, groups[c / kGroup * kTileRows]);
    }
    if (scale_span == kGroup) continue;
    for (size_t c = first; c < first + scale_span; c += 2 * kGroup) {
      const ActivationGroup& next = groups[(c / kGroup + 1) * kTileRows];
      groups[c / kGroup * kTileRows].sum_pair[1] = next.sum_pair[0];
    }
  }
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(QuantizeRow);

void QuantizeRows(MatView<const float> x, std::span<const uint32_t> rows_of_expert,
                  size_t scale_span, Activations::Int8Rows& out, ThreadPool& pool) {
  std::vector<uint32_t> places;  // of the rows: tile * kTileRows + row of the tile
  places.reserve(x.rows);
  uint32_t first = 0;
  for (const uint32_t rows : rows_of_expert) {
    for (uint32_t i = 0; i < rows; ++i) places.push_back(first + i);
    first += (rows + kTileRows - 1) / kTileRows * kTileRows;
  }
  out.num_groups = x.cols / kGroup;
  out.tiles.Resize(first / kTileRows, out.num_groups * kTileRows);
  ParallelRows(pool, x.rows, x.cols, [&](size_t row) {
    const size_t place = places[row];
    HWY_DYNAMIC_DISPATCH(QuantizeRow)
    (x.Row(row), x.cols, scale_span, out.tiles.Row(place / kTileRows) + place % kTileRows);
  });
}

}  // namespace spa
#endif  // HWY_ONCE
