// Products of quantised weights with int8 activations.
//
// A block of a panel is first brought into the form the kernels want, bytes and float scales; it
// then stays in L1 while tiles of up to 4 rows pass by from L2. In each group of inputs the
// products are summed as integers, exactly; the group's sum is scaled into a float sum, group after
// group. The float sums live in memory (L1), which leaves the registers to the integer sums.
#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_int.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "kernels/byte_dot-inl.h"
#include "kernels/panels.h"
#include "kernels/part_sums-inl.h"

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

// Up to here all activations of a part stay in L2.
constexpr size_t kFewRows = 16;

// Up to here 4-bit weights are taken apart as they are multiplied; with more rows that pays once,
// before the first tile.
constexpr size_t kFewTiles = 2;

struct alignas(64) WeightBlock {
  uint8_t unpacked[kBlockGroups * kGroupBytes];
  float scales[2 * kBlockGroups * kPanelWidth];  // [groups][16], or [2 * groups][16] where a scale
                                                 // covers 16 inputs
  float mins[kBlockGroups * kPanelWidth];        // [groups][16]
  const uint8_t* values;                         // [groups][8 quads][16][4], or 4 bits each as in
                                                 // the panel
};

HWY_INLINE VU8 LowNibbles(VU8 bytes) { return hn::And(bytes, hn::Set(DU8(), 15)); }

HWY_INLINE VU8 HighNibbles(VU8 bytes) {
  constexpr hn::Repartition<uint16_t, DU8> d16;
  return LowNibbles(hn::BitCast(DU8(), hn::ShiftRight<4>(hn::BitCast(d16, bytes))));
}

// The values of a quad as bytes.
template <bool kNibbles>
HWY_INLINE void LoadQuad(const uint8_t* quad, VU8 (&w)[kVecs]) {
  constexpr DU8 d8;
  if constexpr (kNibbles) {
    for (size_t v = 0; v < kVecs / 2; ++v) {
      const VU8 both = hn::Load(d8, quad + v * kLanes * kQuad);
      w[v] = LowNibbles(both);
      w[v + kVecs / 2] = HighNibbles(both);
    }
  } else {
    for (size_t v = 0; v < kVecs; ++v) w[v] = hn::Load(d8, quad + v * kLanes * kQuad);
  }
}

// 4-bit values become bytes.
void UnpackNibbles(const uint8_t* HWY_RESTRICT from, size_t num_groups, uint8_t* HWY_RESTRICT to) {
  for (size_t quad = 0; quad < num_groups * kQuadsPerGroup; ++quad) {
    VU8 w[kVecs];
    LoadQuad<true>(from, w);
    for (size_t v = 0; v < kVecs; ++v) hn::Store(w[v], DU8(), to + v * kLanes * kQuad);
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
      case ScaleForm::kNone:
        break;
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

void UnpackBlock(const PackedMatrix::Panels& w, size_t panel, size_t first_group, size_t num_groups,
                 bool keep_nibbles, WeightBlock& block) {
  ExpandScales(w, panel, first_group, num_groups, block.scales, block.mins);
  const uint8_t* values = reinterpret_cast<const uint8_t*>(w.Values(panel));
  if (w.form != PanelForm::kInt4) {
    block.values = values + first_group * kGroupBytes;
  } else if (keep_nibbles) {
    block.values = values + first_group * kGroupBytes / 2;
  } else {
    UnpackNibbles(values + first_group * kGroupBytes / 2, num_groups, block.unpacked);
    block.values = block.unpacked;
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

// How values of each width are multiplied and summed, two quads at a time. Start gives a sum with
// the zero point taken out, for the inputs of one part of a group (of one or two); Finish gives the
// sum of each channel.

// -zero_point * sum of the activations of the part
template <int kZeroPoint, size_t kParts>
HWY_INLINE VI32 MinusZeroPoint(const ActivationGroup& a, size_t part) {
  return PairSum(BroadcastPair(a.sums), part == 0 ? -kZeroPoint : 0,
                 part + 1 == kParts ? -kZeroPoint : 0);
}

#if SPA_HAS_QUAD_DOT

template <int kZeroPoint, uint8_t kFlip>
struct QuadDotSums {
  using Sum = VI32;
  template <size_t kParts>
  static HWY_INLINE Sum Start(const ActivationGroup& a, size_t part) {
    return MinusZeroPoint<kZeroPoint, kParts>(a, part);
  }
  static HWY_INLINE Sum Add(Sum sum, VU8 w0, VI8 a0, VU8 w1, VI8 a1) {
    const VU8 flip = hn::Set(DU8(), kFlip);
    return QuadDot(QuadDot(sum, hn::Xor(w0, flip), a0), hn::Xor(w1, flip), a1);
  }
  static HWY_INLINE VI32 Finish(Sum sum) { return sum; }
};
using Int4 = QuadDotSums<kZeroPoint4, 0>;
using Int6 = QuadDotSums<kZeroPoint6, 0>;
#if HWY_ARCH_X86
using Int8 = QuadDotSums<128, 128>;  // its weights are unsigned
#else
using Int8 = QuadDotSums<0, 0>;
#endif

#else  // !SPA_HAS_QUAD_DOT

struct Int4 {
  // 16 bits hold the sum over the whole group: 8 quads of 2 products of 15 * 127.
  using Sum = VI16;
  template <size_t kParts>
  static HWY_INLINE Sum Start(const ActivationGroup& a, size_t) {
    return BroadcastPair(a.zero4);
  }
  static HWY_INLINE Sum Add(Sum sum, VU8 w0, VI8 a0, VU8 w1, VI8 a1) {
    return KeepOrder(hn::Add(KeepOrder(hn::Add(sum, PairDot(w0, a0))), PairDot(w1, a1)));
  }
  static HWY_INLINE VI32 Finish(Sum sum) { return PairSum(sum); }
};

struct Int6 {
  using Sum = VI32;
  template <size_t kParts>
  static HWY_INLINE Sum Start(const ActivationGroup& a, size_t part) {
    return MinusZeroPoint<kZeroPoint6, kParts>(a, part);
  }
  static HWY_INLINE Sum Add(Sum sum, VU8 w0, VI8 a0, VU8 w1, VI8 a1) {
    // 16 bits hold two quads: 2 * 2 products of 63 * 127.
    return KeepOrder(hn::Add(sum, PairSum(hn::Add(PairDot(w0, a0), PairDot(w1, a1)))));
  }
  static HWY_INLINE VI32 Finish(Sum sum) { return sum; }
};

struct Int8 {
  using Sum = VI32;
  template <size_t kParts>
  static HWY_INLINE Sum Start(const ActivationGroup&, size_t) {
    return hn::Zero(DI32());
  }
  static HWY_INLINE Sum Add(Sum sum, VU8 w0, VI8 a0, VU8 w1, VI8 a1) {
    sum = KeepOrder(hn::Add(sum, PairSum(PairDotSigned(hn::BitCast(DI8(), w0), a0))));
    return KeepOrder(hn::Add(sum, PairSum(PairDotSigned(hn::BitCast(DI8(), w1), a1))));
  }
  static HWY_INLINE VI32 Finish(Sum sum) { return sum; }
};

#endif  // SPA_HAS_QUAD_DOT

// acc += scale * sums (+ min * sum of the activations)
template <bool kHasMin, size_t kRows>
HWY_INLINE void ScaleSums(const VI32 (&sums)[kRows][kVecs], const ActivationGroup* a,
                          const float* scales, const float* mins, float* acc) {
  constexpr DF32 df;
  for (size_t v = 0; v < kVecs; ++v) {
    const VF32 scale = hn::Load(df, scales + v * kLanes);
    for (size_t r = 0; r < kRows; ++r) {
      float* to = acc + r * kPanelWidth + v * kLanes;
      VF32 sum = hn::MulAdd(hn::ConvertTo(df, sums[r][v]), hn::Mul(scale, hn::Set(df, a[r].scale)),
                            hn::Load(df, to));
      if constexpr (kHasMin) {
        sum = hn::MulAdd(hn::Load(df, mins + v * kLanes), hn::Set(df, a[r].scaled_sum), sum);
      }
      hn::Store(sum, df, to);
    }
  }
}

// The packed weights of a block, to be brought from memory into L2 while the block before it is
// multiplied. Unpacking alone leaves the memory idle during the products, and with few rows that is
// most of the time. The tiles share the lines of each group, so that memory is busy all the time.
struct Prefetch {
  const std::byte* values = nullptr;  // null: nothing to fetch
  const std::byte* scales = nullptr;
  size_t values_per_group = 0;  // bytes
  size_t scales_per_group = 0;
  size_t begin = 0, end = 0;  // bytes of a group that the tile fetches

  void ForTile(size_t tile, size_t num_tiles) {
    const size_t lines = values_per_group / kLineBytes;
    begin = lines * tile / num_tiles * kLineBytes;
    end = lines * (tile + 1) / num_tiles * kLineBytes;
  }
  HWY_INLINE void Group(size_t g) const {
    if (values == nullptr) return;
    for (size_t i = begin; i < end; i += kLineBytes) {
      __builtin_prefetch(values + g * values_per_group + i, 0, 2);
    }
    if (begin == 0) __builtin_prefetch(scales + g * scales_per_group, 0, 2);
  }
  static constexpr size_t kLineBytes = 64;
};

// Adds num_groups groups to the sums of kRows rows. acc: [kRows][16]
template <class Arithmetic, bool kNibbles, bool kHasMin, size_t kParts, size_t kRows>
HWY_NOINLINE void AddGroups(const ActivationGroup* HWY_RESTRICT a, const WeightBlock& w,
                            size_t num_groups, const Prefetch& prefetch, float* HWY_RESTRICT acc) {
  using Sum = typename Arithmetic::Sum;
  constexpr size_t kQuadsPerPart = kQuadsPerGroup / kParts;
  constexpr size_t kStride = kNibbles ? kQuadBytes / 2 : kQuadBytes;
  const uint8_t* HWY_RESTRICT values = w.values;
  const float* HWY_RESTRICT scales = w.scales;
  const float* HWY_RESTRICT mins = w.mins;
  for (size_t g = 0; g < num_groups; ++g, a += kTileRows, mins += kPanelWidth) {
    prefetch.Group(g);
    for (size_t part = 0; part < kParts; ++part, scales += kPanelWidth) {
      Sum sums[kRows][kVecs];
      for (size_t r = 0; r < kRows; ++r) {
        const Sum start =
            kHasMin ? hn::Zero(hn::DFromV<Sum>()) : Arithmetic::template Start<kParts>(a[r], part);
        for (size_t v = 0; v < kVecs; ++v) sums[r][v] = start;
      }
      const int8_t* inputs = a->q + part * kQuadsPerPart * kQuad;
      HWY_UNROLL(4)
      for (size_t quad = 0; quad < kQuadsPerPart; quad += 2, values += 2 * kStride) {
        VU8 w0[kVecs], w1[kVecs];
        LoadQuad<kNibbles>(values, w0);
        LoadQuad<kNibbles>(values + kStride, w1);
        for (size_t r = 0; r < kRows; ++r) {
          const int8_t* input = inputs + r * sizeof(ActivationGroup) + quad * kQuad;
          const VI8 a0 = BroadcastQuad(input);
          const VI8 a1 = BroadcastQuad(input + kQuad);
          for (size_t v = 0; v < kVecs; ++v) {
            sums[r][v] = Arithmetic::Add(sums[r][v], w0[v], a0, w1[v], a1);
          }
        }
      }
      VI32 totals[kRows][kVecs];
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t v = 0; v < kVecs; ++v) totals[r][v] = Arithmetic::Finish(sums[r][v]);
      }
      ScaleSums<kHasMin>(totals, a, scales, mins, acc);
    }
  }
}

template <class Arithmetic, bool kNibbles, bool kHasMin, size_t kParts>
void MultiplyIntPart(const Activations::Int8Rows& x, const PackedMatrix::Panels& w,
                     const float* bias, const MatMulPart& part, MatView<float> y) {
  thread_local WeightBlock block;
  PartSums sums(part);
  const size_t blocks_per_panel = (x.num_groups + kBlockGroups - 1) / kBlockGroups;
  const size_t num_blocks = blocks_per_panel * part.num_panels;
  // With many rows a block of activations meets all panels before the next comes from L3. Few rows
  // fit in L2 whole, and their weights are best read as they lie in memory.
  const bool panel_by_panel = part.num_rows <= kFewRows;
  const auto panel_of = [&](size_t b) {
    return panel_by_panel ? b / blocks_per_panel : b % part.num_panels;
  };
  const auto first_group_of = [&](size_t b) {
    return (panel_by_panel ? b % blocks_per_panel : b / part.num_panels) * kBlockGroups;
  };
  Prefetch prefetch;
  prefetch.values_per_group = w.values_bytes / x.num_groups;
  prefetch.scales_per_group = (w.panel_bytes - w.values_bytes) / x.num_groups;

  for (size_t b = 0; b < num_blocks; ++b) {
    const size_t panel = panel_of(b);
    const size_t first = first_group_of(b);
    const size_t count = HWY_MIN(kBlockGroups, x.num_groups - first);
    UnpackBlock(w, part.first_panel + panel, first, count, kNibbles, block);
    prefetch.values = nullptr;
    if (b + 1 < num_blocks) {
      const size_t next_panel = part.first_panel + panel_of(b + 1);
      const size_t next = first_group_of(b + 1);
      prefetch.values = w.Values(next_panel) + next * prefetch.values_per_group;
      prefetch.scales = w.Scales(next_panel) + next * prefetch.scales_per_group;
    }
    const size_t num_tiles = (part.num_rows + kTileRows - 1) / kTileRows;
    for (size_t i = 0; i < part.num_rows; i += kTileRows) {
      prefetch.ForTile(i / kTileRows, num_tiles);
      const ActivationGroup* a = x.Tile((part.first_row + i) / kTileRows) + first * kTileRows;
      float* acc = sums.Row(panel, i);
      switch (HWY_MIN(kTileRows, part.num_rows - i)) {
        case 1:
          AddGroups<Arithmetic, kNibbles, kHasMin, kParts, 1>(a, block, count, prefetch, acc);
          break;
        case 2:
          AddGroups<Arithmetic, kNibbles, kHasMin, kParts, 2>(a, block, count, prefetch, acc);
          break;
        case 3:
          AddGroups<Arithmetic, kNibbles, kHasMin, kParts, 3>(a, block, count, prefetch, acc);
          break;
        case 4:
          AddGroups<Arithmetic, kNibbles, kHasMin, kParts, 4>(a, block, count, prefetch, acc);
          break;
      }
    }
  }
  sums.WriteTo(y, bias);
}

void MultiplyInt(const Activations::Int8Rows& x, const PackedMatrix::Panels& w, const float* bias,
                 const MatMulPart& part, MatView<float> y) {
  const bool has_min = w.scale_form == ScaleForm::kHalfMin || w.scale_form == ScaleForm::kSuper;
  switch (w.form) {
    case PanelForm::kInt4:
      if (part.num_rows <= kFewTiles * kTileRows) {
        return has_min ? MultiplyIntPart<Int4, true, true, 1>(x, w, bias, part, y)
                       : MultiplyIntPart<Int4, true, false, 1>(x, w, bias, part, y);
      }
      return has_min ? MultiplyIntPart<Int4, false, true, 1>(x, w, bias, part, y)
                     : MultiplyIntPart<Int4, false, false, 1>(x, w, bias, part, y);
    case PanelForm::kInt6:
      if (w.scale_form == ScaleForm::kSuperHalf) {
        return MultiplyIntPart<Int6, false, false, 2>(x, w, bias, part, y);
      }
      return has_min ? MultiplyIntPart<Int6, false, true, 1>(x, w, bias, part, y)
                     : MultiplyIntPart<Int6, false, false, 1>(x, w, bias, part, y);
    case PanelForm::kInt8:
      return MultiplyIntPart<Int8, false, false, 1>(x, w, bias, part, y);
    default:
      HWY_ABORT("not a form of integers");
  }
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(MultiplyInt);

void MatMulInt(const Activations::Int8Rows& x, const PackedMatrix::Panels& w, const float* bias,
               const MatMulPart& part, MatView<float> y) {
  HWY_DYNAMIC_DISPATCH(MultiplyInt)(x, w, bias, part, y);
}

}  // namespace spa
#endif  // HWY_ONCE
