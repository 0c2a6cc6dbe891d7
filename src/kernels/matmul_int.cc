// Products of quantised weights with int8 activations.
//
// A block of a panel is first brought into the form the kernels want, bytes and float scales; it
// then stays in L1 while tiles of up to 4 rows pass by from L2. In each group of inputs the
// products are summed as integers, exactly; the group's sum is scaled into a float sum, group after
// group. The float sums live in memory (L1), which leaves the registers to the integer sums. The K
// types have integer scales within a super-block of 8 groups: all of it is summed as integers.
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
constexpr size_t kGroupsPerSuper = 8;

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
  // kHalf, kHalfMin:
  float scales[kBlockGroups * kPanelWidth];  // [groups][16]
  float mins[kBlockGroups * kPanelWidth];    // [groups][16]

  // kSuper, kSuperHalf:
  float super_scales[kBlockGroups / kGroupsPerSuper * kPanelWidth];  // [supers][16]
  float super_mins[kBlockGroups / kGroupsPerSuper * kPanelWidth];    // [supers][16]
  int16_t scale_pairs[2 * kBlockGroups * 2 * kPanelWidth];           // [groups * parts][16]: s, s
  int16_t min_pairs[kBlockGroups / 2 * 2 * kPanelWidth];  // kSuper [groups / 2][16]: m, next m

  const uint8_t* values;  // [groups][8 quads][16][4], or 4 bits each as in the panel
};

HWY_INLINE VU8 LowNibbles(VU8 bytes) { return hn::And(bytes, hn::Set(DU8(), 15)); }

HWY_INLINE VU8 HighNibbles(VU8 bytes) {
  constexpr hn::Repartition<uint16_t, DU8> d16;
  return LowNibbles(hn::BitCast(DU8(), hn::ShiftRight<4>(hn::BitCast(d16, bytes))));
}

// Bytes of a quad that is kept in 4 bits, or not.
template <bool kNibbles>
constexpr size_t kQuadStride = kNibbles ? kQuadBytes / 2 : kQuadBytes;

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

// The scales of the groups from first_group on, in the form the products want.
void ExpandScales(const PackedMatrix::Panels& w, size_t panel, size_t first_group,
                  size_t num_groups, WeightBlock& block) {
  constexpr hn::CappedTag<float, 8> df;
  constexpr hn::Rebind<hwy::float16_t, decltype(df)> d16;
  constexpr hn::Rebind<int32_t, decltype(df)> di;
  constexpr size_t kHalves = 2 * kPanelWidth;  // bytes of 16 halves
  const auto half = [&](const std::byte* p) HWY_ATTR {
    return hn::PromoteTo(df, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
  };
  const auto byte = [&](auto type, const std::byte* p) HWY_ATTR {
    constexpr hn::Rebind<decltype(type), decltype(df)> d8;
    return hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const decltype(type)*>(p)));
  };
  const auto store_pair = [&](auto low, auto high, int16_t* to) HWY_ATTR {
    const auto pair = hn::Or(hn::And(low, hn::Set(di, 0xffff)), hn::ShiftLeft<16>(high));
    hn::Store(pair, di, reinterpret_cast<int32_t*>(to));
  };
  const std::byte* scales = w.Scales(panel);
  switch (w.scale_form) {
    case ScaleForm::kNone:
      return;
    case ScaleForm::kHalf:
    case ScaleForm::kHalfMin: {
      const bool has_min = w.scale_form == ScaleForm::kHalfMin;
      const size_t stride = has_min ? 2 * kHalves : kHalves;
      for (size_t c = 0; c < kPanelWidth; c += hn::Lanes(df)) {
        const std::byte* from = scales + first_group * stride + 2 * c;
        for (size_t i = c; i < num_groups * kPanelWidth; i += kPanelWidth, from += stride) {
          hn::Store(half(from), df, block.scales + i);
          if (has_min) hn::Store(half(from + kHalves), df, block.mins + i);
        }
      }
      return;
    }
    case ScaleForm::kSuper: {
      constexpr size_t kSuperBytes = 2 * kHalves + 2 * kGroupsPerSuper * kPanelWidth;
      const std::byte* from = scales + first_group / kGroupsPerSuper * kSuperBytes;
      for (size_t g = 0; g < num_groups; g += kGroupsPerSuper, from += kSuperBytes) {
        for (size_t c = 0; c < kPanelWidth; c += hn::Lanes(df)) {
          const size_t super = g / kGroupsPerSuper * kPanelWidth + c;
          hn::Store(half(from + 2 * c), df, block.super_scales + super);
          hn::Store(hn::Neg(half(from + kHalves + 2 * c)), df, block.super_mins + super);
          const std::byte* s = from + 2 * kHalves + c;
          const std::byte* m = s + kGroupsPerSuper * kPanelWidth;
          for (size_t j = 0; j < kGroupsPerSuper; ++j) {
            const auto scale = byte(uint8_t(), s + j * kPanelWidth);
            store_pair(scale, scale, block.scale_pairs + 2 * ((g + j) * kPanelWidth + c));
          }
          for (size_t j = 0; j < kGroupsPerSuper; j += 2) {
            store_pair(byte(uint8_t(), m + j * kPanelWidth),
                       byte(uint8_t(), m + (j + 1) * kPanelWidth),
                       block.min_pairs + 2 * ((g + j) / 2 * kPanelWidth + c));
          }
        }
      }
      return;
    }
    case ScaleForm::kSuperHalf: {
      constexpr size_t kSuperBytes = kHalves + 2 * kGroupsPerSuper * kPanelWidth;
      const std::byte* from = scales + first_group / kGroupsPerSuper * kSuperBytes;
      for (size_t g = 0; g < num_groups; g += kGroupsPerSuper, from += kSuperBytes) {
        for (size_t c = 0; c < kPanelWidth; c += hn::Lanes(df)) {
          hn::Store(half(from + 2 * c), df,
                    block.super_scales + g / kGroupsPerSuper * kPanelWidth + c);
          const std::byte* s = from + kHalves + c;
          for (size_t j = 0; j < kGroupsPerSuper; ++j) {
            const auto s0 = byte(int8_t(), s + 2 * j * kPanelWidth);
            const auto s1 = byte(int8_t(), s + (2 * j + 1) * kPanelWidth);
            int16_t* pairs = block.scale_pairs + 2 * (2 * (g + j) * kPanelWidth + c);
            store_pair(s0, s0, pairs);
            store_pair(s1, s1, pairs + 2 * kPanelWidth);
          }
        }
      }
      return;
    }
  }
}

void UnpackBlock(const PackedMatrix::Panels& w, size_t panel, size_t first_group, size_t num_groups,
                 bool keep_nibbles, WeightBlock& block) {
  ExpandScales(w, panel, first_group, num_groups, block);
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

// How values of each width are multiplied with the activations of a row and summed, two quads at a
// time. Start gives a sum of a group with the zero point taken out, Finish that of each channel. In
// a super-block a sum covers kQuadsPerSum quads and begins with a pair of activation sums, or with
// zero; Scaled gives that of each channel times its scale.

#if SPA_HAS_QUAD_DOT

template <int kZeroPoint, uint8_t kFlip>
struct QuadDotSums {
  static constexpr size_t kQuadsPerSum = 4;
  using Sum = VI32;
  static HWY_INLINE Sum Start(const ActivationGroup& a) {
    return PairSum(BroadcastPair(a.own_scale.sums), -kZeroPoint, -kZeroPoint);
  }
  static HWY_INLINE Sum StartAt(const int16_t* pair) { return PairSum(BroadcastPair(pair)); }
  static HWY_INLINE void Add(Sum (&sums)[kVecs], const VU8 (&w0)[kVecs], VI8 a0,
                             const VU8 (&w1)[kVecs], VI8 a1) {
    const VU8 flip = hn::Set(DU8(), kFlip);
    for (size_t v = 0; v < kVecs; ++v) {
      sums[v] = QuadDot(QuadDot(sums[v], hn::Xor(w0[v], flip), a0), hn::Xor(w1[v], flip), a1);
    }
  }
  static HWY_INLINE VI32 Finish(Sum sum) { return sum; }
  static HWY_INLINE VI32 Scaled(Sum sum, VI16 scale_pairs) {
    return hn::Mul(sum, hn::ShiftRight<16>(hn::BitCast(DI32(), scale_pairs)));
  }
};
using Int4 = QuadDotSums<kZeroPoint4, 0>;
using Int6 = QuadDotSums<kZeroPoint6, 0>;
using Int6InSuper = Int6;
#if HWY_ARCH_X86
using Int8 = QuadDotSums<128, 128>;  // its weights are unsigned
#else
using Int8 = QuadDotSums<0, 0>;
#endif

#else  // !SPA_HAS_QUAD_DOT

template <class V>
HWY_INLINE void AddEach(V (&sums)[kVecs], V (&products)[kVecs]) {
  KeepOrder(products);
  for (size_t v = 0; v < kVecs; ++v) sums[v] = hn::Add(sums[v], products[v]);
  KeepOrder(sums);
}

struct Int4 {
  // 16 bits hold the sum over the whole group: 8 quads of 2 products of 15 * 127.
  static constexpr size_t kQuadsPerSum = 8;
  using Sum = VI16;
  static HWY_INLINE Sum Start(const ActivationGroup& a) { return BroadcastPair(a.own_scale.zero4); }
  static HWY_INLINE void Add(Sum (&sums)[kVecs], const VU8 (&w0)[kVecs], VI8 a0,
                             const VU8 (&w1)[kVecs], VI8 a1) {
    AddQuad(sums, w0, a0);
    AddQuad(sums, w1, a1);
  }
  static HWY_INLINE void AddQuad(Sum (&sums)[kVecs], const VU8 (&w)[kVecs], VI8 a) {
    VI16 products[kVecs];
    for (size_t v = 0; v < kVecs; ++v) products[v] = PairDot(w[v], a);
    AddEach(sums, products);
  }
  static HWY_INLINE VI32 Finish(Sum sum) { return PairSum(sum); }
  static HWY_INLINE VI32 Scaled(Sum sum, VI16 scale_pairs) { return PairSum(sum, scale_pairs); }
};

struct Int6 {
  using Sum = VI32;
  static HWY_INLINE Sum Start(const ActivationGroup& a) {
    return PairSum(BroadcastPair(a.own_scale.sums), -kZeroPoint6, -kZeroPoint6);
  }
  static HWY_INLINE void Add(Sum (&sums)[kVecs], const VU8 (&w0)[kVecs], VI8 a0,
                             const VU8 (&w1)[kVecs], VI8 a1) {
    VI32 products[kVecs];
    for (size_t v = 0; v < kVecs; ++v) {
      // 16 bits hold two quads: 2 * 2 products of 63 * 127.
      products[v] = PairSum(hn::Add(PairDot(w0[v], a0), PairDot(w1[v], a1)));
    }
    AddEach(sums, products);
  }
  static HWY_INLINE VI32 Finish(Sum sum) { return sum; }
};

struct Int6InSuper {
  // 16 bits hold the sum over half a group: 4 quads of 2 products of 32 * 127, once the zero point
  // is taken out, or of 31 * 127 for 5-bit values without one. Until then they wrap around.
  static constexpr size_t kQuadsPerSum = 4;
  using Sum = VI16;
  static HWY_INLINE Sum StartAt(const int16_t* pair) { return BroadcastPair(pair); }
  static HWY_INLINE void Add(Sum (&sums)[kVecs], const VU8 (&w0)[kVecs], VI8 a0,
                             const VU8 (&w1)[kVecs], VI8 a1) {
    Int4::Add(sums, w0, a0, w1, a1);
  }
  static HWY_INLINE VI32 Scaled(Sum sum, VI16 scale_pairs) { return PairSum(sum, scale_pairs); }
};

struct Int8 {
  using Sum = VI32;
  static HWY_INLINE Sum Start(const ActivationGroup&) { return hn::Zero(DI32()); }
  static HWY_INLINE void Add(Sum (&sums)[kVecs], const VU8 (&w0)[kVecs], VI8 a0,
                             const VU8 (&w1)[kVecs], VI8 a1) {
    AddQuad(sums, w0, a0);
    AddQuad(sums, w1, a1);
  }
  static HWY_INLINE void AddQuad(Sum (&sums)[kVecs], const VU8 (&w)[kVecs], VI8 a) {
    VI16 pairs[kVecs];
    for (size_t v = 0; v < kVecs; ++v) pairs[v] = PairDotSigned(hn::BitCast(DI8(), w[v]), a);
    KeepOrder(pairs);
    VI32 products[kVecs];
    for (size_t v = 0; v < kVecs; ++v) products[v] = PairSum(pairs[v]);
    AddEach(sums, products);
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
class Prefetch {
 public:
  Prefetch() = default;  // nothing to fetch
  Prefetch(const PackedMatrix::Panels& w, size_t panel, size_t first_group, size_t num_groups)
      : values_per_group_(w.values_bytes / num_groups),
        scales_per_group_((w.panel_bytes - w.values_bytes) / num_groups),
        values_(w.Values(panel) + first_group * values_per_group_),
        scales_(w.Scales(panel) + first_group * scales_per_group_) {}

  // What one of the tiles fetches of each group.
  struct Lines {
    const std::byte* values = nullptr;
    size_t num_lines = 0;
    size_t values_stride = 0;
    const std::byte* scales = nullptr;
    size_t scales_stride = 0;

    HWY_INLINE void FetchGroup() {
      for (size_t i = 0; i < num_lines; ++i) __builtin_prefetch(values + i * kLineBytes, 0, 2);
      __builtin_prefetch(scales, 0, 2);
      values += values_stride;
      scales += scales_stride;
    }
  };
  Lines ForTile(size_t tile, size_t num_tiles) const {
    const size_t lines = values_per_group_ / kLineBytes;
    const size_t first = lines * tile / num_tiles;
    return {.values = values_ + first * kLineBytes,
            .num_lines = lines * (tile + 1) / num_tiles - first,
            .values_stride = values_per_group_,
            .scales = tile == 0 ? scales_ : nullptr,  // where a prefetch does nothing
            .scales_stride = tile == 0 ? scales_per_group_ : 0};
  }

 private:
  static constexpr size_t kLineBytes = 64;
  size_t values_per_group_ = 0, scales_per_group_ = 0;  // bytes
  const std::byte* values_ = nullptr;
  const std::byte* scales_ = nullptr;
};

// Adds the products of two quads of weights, at `values`, with those of kRows rows.
template <class Arithmetic, bool kNibbles, size_t kRows>
HWY_INLINE void AddQuads(const uint8_t* HWY_RESTRICT values, const ActivationGroup* HWY_RESTRICT a,
                         size_t quad, typename Arithmetic::Sum (&sums)[kRows][kVecs]) {
  VU8 w0[kVecs], w1[kVecs];
  LoadQuad<kNibbles>(values, w0);
  LoadQuad<kNibbles>(values + kQuadStride<kNibbles>, w1);
  for (size_t r = 0; r < kRows; ++r) {
    const VI8 a0 = BroadcastQuad(a[r].q + quad * kQuad);
    const VI8 a1 = BroadcastQuad(a[r].q + (quad + 1) * kQuad);
    Arithmetic::Add(sums[r], w0, a0, w1, a1);
  }
}

// What is added to the sums of kRows rows, by the form of the scales. acc: [kRows][16]

template <class Arithmetic, bool kNibbles, bool kHasMin>
struct Groups {
  template <size_t kRows>
  static HWY_NOINLINE void Add(const ActivationGroup* HWY_RESTRICT a, const WeightBlock& w,
                               size_t num_groups, Prefetch::Lines next, float* HWY_RESTRICT acc) {
    using Sum = typename Arithmetic::Sum;
    const uint8_t* HWY_RESTRICT values = w.values;
    for (size_t g = 0; g < num_groups; ++g, a += kTileRows) {
      next.FetchGroup();
      Sum sums[kRows][kVecs];
      for (size_t r = 0; r < kRows; ++r) {
        const Sum start = kHasMin ? hn::Zero(hn::DFromV<Sum>()) : Arithmetic::Start(a[r]);
        for (size_t v = 0; v < kVecs; ++v) sums[r][v] = start;
      }
      HWY_UNROLL(4)
      for (size_t quad = 0; quad < kQuadsPerGroup; quad += 2, values += 2 * kQuadStride<kNibbles>) {
        AddQuads<Arithmetic, kNibbles>(values, a, quad, sums);
      }
      VI32 totals[kRows][kVecs];
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t v = 0; v < kVecs; ++v) totals[r][v] = Arithmetic::Finish(sums[r][v]);
      }
      ScaleSums<kHasMin>(totals, a, w.scales + g * kPanelWidth, w.mins + g * kPanelWidth, acc);
    }
  }
};

// kParts: how many scales a group has. Types with two have a zero point, those with one a min.
template <class Arithmetic, bool kNibbles, size_t kParts>
struct SuperBlocks {
  static constexpr bool kHasMin = kParts == 1;

  template <size_t kRows>
  static HWY_NOINLINE void Add(const ActivationGroup* HWY_RESTRICT a, const WeightBlock& w,
                               size_t num_groups, Prefetch::Lines next, float* HWY_RESTRICT acc) {
    using Sum = typename Arithmetic::Sum;
    constexpr DI16 d16;
    constexpr size_t kPair = 2 * kLanes;  // 16-bit words of a vector of channels
    const uint8_t* HWY_RESTRICT values = w.values;
    const int16_t* HWY_RESTRICT scale_pairs = w.scale_pairs;
    const int16_t* HWY_RESTRICT min_pairs = w.min_pairs;
    for (size_t g = 0; g < num_groups; g += kGroupsPerSuper) {
      VI32 totals[kRows][kVecs];
      for (size_t r = 0; r < kRows; ++r) {
        for (size_t v = 0; v < kVecs; ++v) totals[r][v] = hn::Zero(DI32());
      }
      for (size_t j = 0; j < kGroupsPerSuper; ++j) {
        const ActivationGroup* group = a + j * kTileRows;
        next.FetchGroup();
        HWY_UNROLL(4)
        for (size_t first = 0; first < kQuadsPerGroup; first += Arithmetic::kQuadsPerSum) {
          const size_t part = first * kParts / kQuadsPerGroup;
          Sum sums[kRows][kVecs];
          for (size_t r = 0; r < kRows; ++r) {
            Sum start = hn::Zero(hn::DFromV<Sum>());
            if constexpr (!kHasMin) start = Arithmetic::StartAt(group[r].zero6[part]);
            for (size_t v = 0; v < kVecs; ++v) sums[r][v] = start;
          }
          HWY_UNROLL(4)
          for (size_t quad = first; quad < first + Arithmetic::kQuadsPerSum; quad += 2) {
            AddQuads<Arithmetic, kNibbles>(values + quad * kQuadStride<kNibbles>, group, quad,
                                           sums);
          }
          for (size_t r = 0; r < kRows; ++r) {
            VI32 scaled[kVecs];
            for (size_t v = 0; v < kVecs; ++v) {
              const VI16 scales = hn::Load(d16, scale_pairs + part * 2 * kPanelWidth + v * kPair);
              scaled[v] = Arithmetic::Scaled(sums[r][v], scales);
            }
            for (size_t v = 0; v < kVecs; ++v) totals[r][v] = hn::Add(totals[r][v], scaled[v]);
            KeepOrder(totals[r]);
          }
        }
        values += kQuadsPerGroup * kQuadStride<kNibbles>;
        scale_pairs += kParts * 2 * kPanelWidth;
      }
      constexpr DF32 df;
      const size_t super = g / kGroupsPerSuper * kPanelWidth;
      for (size_t r = 0; r < kRows; ++r) {
        const VF32 scale = hn::Set(df, a[r].scale);
        for (size_t v = 0; v < kVecs; ++v) {
          float* to = acc + r * kPanelWidth + v * kLanes;
          const auto part = [&](VI32 total, const float* factor) HWY_ATTR {
            return hn::Mul(hn::ConvertTo(df, total),
                           hn::Mul(scale, hn::Load(df, factor + super + v * kLanes)));
          };
          VF32 sum = hn::Add(hn::Load(df, to), part(totals[r][v], w.super_scales));
          if constexpr (kHasMin) {
            VI32 mins = hn::Zero(DI32());
            for (size_t j = 0; j < kGroupsPerSuper; j += 2) {
              const VI16 pair = hn::Load(d16, min_pairs + j * kPanelWidth + v * kPair);
              mins = hn::Add(mins, PairSum(BroadcastPair(a[j * kTileRows + r].sum_pair), pair));
            }
            sum = hn::Add(sum, part(mins, w.super_mins));
          }
          hn::Store(sum, df, to);
        }
      }
      min_pairs += kGroupsPerSuper * kPanelWidth;
      a += kGroupsPerSuper * kTileRows;
    }
  }
};

// The thread's own. On the heap: thread-local storage costs every thread of the program its size.
WeightBlock& OwnBlock() {
  thread_local Mat<WeightBlock> block;
  block.Resize(1, 1);
  return *block.data();
}

template <bool kNibbles, class Form>
void MultiplyIntPart(const Activations::Int8Rows& x, const PackedMatrix::Panels& w,
                     const float* bias, const MatMulPart& part, MatView<float> y) {
  WeightBlock& block = OwnBlock();
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
  for (size_t b = 0; b < num_blocks; ++b) {
    const size_t panel = panel_of(b);
    const size_t first = first_group_of(b);
    const size_t count = HWY_MIN(kBlockGroups, x.num_groups - first);
    UnpackBlock(w, part.first_panel + panel, first, count, kNibbles, block);
    Prefetch prefetch;
    if (b + 1 < num_blocks) {
      prefetch =
          Prefetch(w, part.first_panel + panel_of(b + 1), first_group_of(b + 1), x.num_groups);
    }
    const size_t num_tiles = (part.num_rows + kTileRows - 1) / kTileRows;
    for (size_t i = 0; i < part.num_rows; i += kTileRows) {
      const Prefetch::Lines next = prefetch.ForTile(i / kTileRows, num_tiles);
      const ActivationGroup* a = x.Tile(part.first_tile + i / kTileRows) + first * kTileRows;
      float* acc = sums.Row(panel, i);
      switch (HWY_MIN(kTileRows, part.num_rows - i)) {
        case 1:
          Form::template Add<1>(a, block, count, next, acc);
          break;
        case 2:
          Form::template Add<2>(a, block, count, next, acc);
          break;
        case 3:
          Form::template Add<3>(a, block, count, next, acc);
          break;
        case 4:
          Form::template Add<4>(a, block, count, next, acc);
          break;
      }
    }
  }
  sums.WriteTo(y, bias);
}

// Few rows of 4-bit weights take them apart as they are multiplied.
template <bool kNibbles>
void MultiplyInt4(const Activations::Int8Rows& x, const PackedMatrix::Panels& w, const float* bias,
                  const MatMulPart& part, MatView<float> y) {
  switch (w.scale_form) {
    case ScaleForm::kHalf:
      return MultiplyIntPart<kNibbles, Groups<Int4, kNibbles, false>>(x, w, bias, part, y);
    case ScaleForm::kHalfMin:
      return MultiplyIntPart<kNibbles, Groups<Int4, kNibbles, true>>(x, w, bias, part, y);
    default:
      return MultiplyIntPart<kNibbles, SuperBlocks<Int4, kNibbles, 1>>(x, w, bias, part, y);
  }
}

void MultiplyInt(const Activations::Int8Rows& x, const PackedMatrix::Panels& w, const float* bias,
                 const MatMulPart& part, MatView<float> y) {
  switch (w.form) {
    case PanelForm::kInt4:
      return part.num_rows <= kFewTiles * kTileRows ? MultiplyInt4<true>(x, w, bias, part, y)
                                                    : MultiplyInt4<false>(x, w, bias, part, y);
    case PanelForm::kInt6:
      switch (w.scale_form) {
        case ScaleForm::kHalf:
          return MultiplyIntPart<false, Groups<Int6, false, false>>(x, w, bias, part, y);
        case ScaleForm::kHalfMin:
          return MultiplyIntPart<false, Groups<Int6, false, true>>(x, w, bias, part, y);
        case ScaleForm::kSuper:
          return MultiplyIntPart<false, SuperBlocks<Int6InSuper, false, 1>>(x, w, bias, part, y);
        default:
          return MultiplyIntPart<false, SuperBlocks<Int6InSuper, false, 2>>(x, w, bias, part, y);
      }
    case PanelForm::kInt8:
      return MultiplyIntPart<false, Groups<Int8, false, false>>(x, w, bias, part, y);
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
