// Products of quantised weights with int8 activations.
//
// A part of a panel is first brought into the form the kernels want, bytes and float scales; it
// then stays in L1 while tiles of up to 4 rows pass by. In each group of inputs the products are
// summed as integers, exactly; the group's sum is scaled into a float sum, group after group. The
// float sums live in memory (L1), which leaves the registers to the integer sums.
#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_int.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "kernels/byte_dot-inl.h"
#include "kernels/panel_output-inl.h"
#include "kernels/panels.h"

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanes = hn::MaxLanes(DF32());  // channels of a vector
constexpr size_t kVecs = kPanelWidth / kLanes;   // vectors of a panel
constexpr size_t kQuadBytes = kPanelWidth * kQuad;
constexpr size_t kGroupBytes = kPanelWidth * kGroup;
constexpr size_t kQuadsPerGroup = kGroup / kQuad;

// Groups that are unpacked at a time: 16 KB of bytes and at most 4 KB of scales, which with a tile
// of activations (6 KB) fit in L1. A multiple of the 8 groups of a super-block.
constexpr size_t kBlockGroups = 32;

struct alignas(64) WeightBlock {
  uint8_t unpacked[kBlockGroups * kGroupBytes];
  float scales[2 * kBlockGroups * kPanelWidth];  // [groups][16], or [2 * groups][16] where a scale
                                                 // covers 16 inputs
  float mins[kBlockGroups * kPanelWidth];        // [groups][16]
  const uint8_t* values;                         // [groups][8 quads][16][4]
};

// 4-bit values become bytes.
void UnpackNibbles(const uint8_t* HWY_RESTRICT from, size_t num_groups, uint8_t* HWY_RESTRICT to) {
  constexpr DU8 d8;
  constexpr hn::Repartition<uint16_t, DU8> d16;
  const VU8 low_nibble = hn::Set(d8, 15);
  for (size_t quad = 0; quad < num_groups * kQuadsPerGroup; ++quad) {
    for (size_t i = 0; i < kQuadBytes / 2; i += hn::Lanes(d8)) {
      const VU8 both = hn::Load(d8, from + i);
      const VU8 shifted = hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, both)));
      hn::Store(hn::And(both, low_nibble), d8, to + i);
      hn::Store(hn::And(shifted, low_nibble), d8, to + kQuadBytes / 2 + i);
    }
    from += kQuadBytes / 2;
    to += kQuadBytes;
  }
}

// Scales and mins of the groups from first_group on, as float.
void ExpandScales(const PackedMatrix::Panels& w, size_t panel, size_t first_group,
                  size_t num_groups, float* scales, float* mins) {
  constexpr hn::CappedTag<float, 8> df;
  constexpr hn::Rebind<hwy::float16_t, decltype(df)> d16;
  constexpr hn::Rebind<int32_t, decltype(df)> di;
  constexpr size_t kHalves = 2 * kPanelWidth;  // bytes of 16 halves
  constexpr size_t kGroupsPerSuper = 8;
  const auto half = [&](const std::byte* p) HWY_ATTR {
    return hn::PromoteTo(df, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
  };
  const auto byte = [&](auto type, const std::byte* p) HWY_ATTR {
    constexpr hn::Rebind<decltype(type), decltype(df)> d8;
    return hn::ConvertTo(
        df, hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const decltype(type)*>(p))));
  };
  for (size_t c = 0; c < kPanelWidth; c += hn::Lanes(df)) {
    const std::byte* from = w.Scales(panel);
    float* scale = scales + c;
    float* min = mins + c;
    switch (w.scale_form) {
      case ScaleForm::kNone: break;
      case ScaleForm::kHalf:
        from += first_group * kHalves + 2 * c;
        for (size_t g = 0; g < num_groups; ++g, from += kHalves) {
          hn::Store(half(from), df, scale + g * kPanelWidth);
        }
        break;
      case ScaleForm::kHalfMin:
        from += first_group * 2 * kHalves + 2 * c;
        for (size_t g = 0; g < num_groups; ++g, from += 2 * kHalves) {
          hn::Store(half(from), df, scale + g * kPanelWidth);
          hn::Store(half(from + kHalves), df, min + g * kPanelWidth);
        }
        break;
      case ScaleForm::kSuper: {
        constexpr size_t kSuperBytes = 2 * kHalves + 2 * kGroupsPerSuper * kPanelWidth;
        from += first_group / kGroupsPerSuper * kSuperBytes;
        for (size_t g = 0; g < num_groups; g += kGroupsPerSuper, from += kSuperBytes) {
          const auto d = half(from + 2 * c);
          const auto dmin = hn::Neg(half(from + kHalves + 2 * c));
          const std::byte* s = from + 2 * kHalves + c;
          const std::byte* m = s + kGroupsPerSuper * kPanelWidth;
          for (size_t j = 0; j < kGroupsPerSuper * kPanelWidth; j += kPanelWidth) {
            hn::Store(hn::Mul(d, byte(uint8_t(), s + j)), df, scale + g * kPanelWidth + j);
            hn::Store(hn::Mul(dmin, byte(uint8_t(), m + j)), df, min + g * kPanelWidth + j);
          }
        }
        break;
      }
      case ScaleForm::kSuperHalf: {
        constexpr size_t kSuperBytes = kHalves + 2 * kGroupsPerSuper * kPanelWidth;
        from += first_group / kGroupsPerSuper * kSuperBytes;
        for (size_t g = 0; g < num_groups; g += kGroupsPerSuper, from += kSuperBytes) {
          const auto d = half(from + 2 * c);
          const std::byte* s = from + kHalves + c;
          for (size_t j = 0; j < 2 * kGroupsPerSuper * kPanelWidth; j += kPanelWidth) {
            hn::Store(hn::Mul(d, byte(int8_t(), s + j)), df, scale + 2 * g * kPanelWidth + j);
          }
        }
        break;
      }
    }
  }
}

void UnpackBlock(const PackedMatrix::Panels& w, size_t panel, size_t first_group,
                 size_t num_groups, WeightBlock& block) {
  ExpandScales(w, panel, first_group, num_groups, block.scales, block.mins);
  const uint8_t* values = reinterpret_cast<const uint8_t*>(w.Values(panel));
  if (w.form == PanelForm::kInt4) {
    UnpackNibbles(values + first_group * kGroupBytes / 2, num_groups, block.unpacked);
    block.values = block.unpacked;
  } else {
    block.values = values + first_group * kGroupBytes;
  }
}

HWY_INLINE VI8 BroadcastQuad(const int8_t* q) {
  int32_t word;
  std::memcpy(&word, q, sizeof(word));
  return hn::BitCast(DI8(), hn::Set(DI32(), word));
}

HWY_INLINE VI16 BroadcastPair(const int16_t* pair) {
  int32_t word;
  std::memcpy(&word, pair, sizeof(word));
  return hn::BitCast(DI16(), hn::Set(DI32(), word));
}

// How values of one width are multiplied and summed. Start is a sum with the zero point taken out
// of part 0 or 1 of kParts parts of a group; Add adds two quads; Finish gives 32-bit sums.

#if SPA_HAS_QUAD_DOT

template <int kZeroPoint>
struct QuadSums {
  using Sum = VI32;
  template <size_t kParts>
  static HWY_INLINE Sum Start(const ActivationGroup& a, size_t part) {
    return PairSum(BroadcastPair(a.sums), part == 0 ? -kZeroPoint : 0,
                   part + 1 == kParts ? -kZeroPoint : 0);
  }
  static HWY_INLINE Sum Add(Sum sum, VU8 w, VI8 a) { return QuadDot(sum, w, a); }
  static HWY_INLINE VI32 Finish(Sum sum) { return sum; }
};

#endif

// acc += scale * sums (+ min * sum of the activations)
template <size_t kRows, bool kHasMin>
HWY_INLINE void ScaleSums(const VI32 (&sums)[kRows][kVecs], const ActivationGroup* a,
                          const float* scales, const float* mins, float* acc) {
  constexpr DF32 df;
  for (size_t v = 0; v < kVecs; ++v) {
    const VF32 scale = hn::Load(df, scales + v * kLanes);
    for (size_t r = 0; r < kRows; ++r) {
      float* to = acc + r * kPanelWidth + v * kLanes;
      VF32 sum = hn::MulAdd(hn::ConvertTo(df, sums[r][v]),
                            hn::Mul(scale, hn::Set(df, a[r].scale)), hn::Load(df, to));
      if constexpr (kHasMin) {
        sum = hn::MulAdd(hn::Load(df, mins + v * kLanes), hn::Set(df, a[r].scaled_sum), sum);
      }
      hn::Store(sum, df, to);
    }
  }
}
