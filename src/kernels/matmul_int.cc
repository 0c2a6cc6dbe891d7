// Products of quantised weights with int8 activations.
//
// A block of a panel is first brought into the form the kernels want, bytes and float scales; it
// then stays in L1 while tiles of up to 4 or 8 rows pass by from L2. In each group of inputs the
// products are summed as integers, exactly; the group's sum is scaled into a float sum, group after
// group. With 16 registers the float sums live in memory (L1), which leaves the registers to the
// integer sums. The K types have integer scales within a super-block of 8 groups: all of it is
// summed as integers.
#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_int.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <type_traits>

#include "kernels/amx_tiles-inl.h"
#include "kernels/byte_dot-inl.h"
#include "kernels/for_each-inl.h"
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

// Where a vector holds all channels of a panel (and there are 32 registers), 8 rows are multiplied
// at a time and their float sums stay in registers.
constexpr bool kWide = kVecs == 1;
constexpr size_t kRowsAtATime = kWide ? 2 * kTileRows : kTileRows;

// Groups that are unpacked at a time: 16 KB of bytes and at most 4 KB of scales, which with a tile
// of activations (6 KB) fit in L1. Half of that where two tiles share it. A multiple of the 8
// groups of a super-block.
constexpr size_t kBlockGroups = kWide ? 16 : 32;

// Up to here all activations of a part stay in L2.
constexpr size_t kFewRows = 16;

// Up to here 4-bit weights are taken apart as they are multiplied; with more rows that pays once,
// before the first tile. Wide vectors have registers to spare for it, and on AMD pipes.
constexpr size_t kFewTiles = kWide ? 4 : 2;

struct alignas(64) WeightBlock {
  uint8_t unpacked[kBlockGroups * kGroupBytes];
  // kHalf, kHalfMin:
  float scales[kBlockGroups * kPanelWidth];  // [groups][16]
  float mins[kBlockGroups * kPanelWidth];    // [groups][16]

  // kSuper, kSuperHalf:
  float super_scales[kBlockGroups / kGroupsPerSuper * kPanelWidth];  // [supers][16]
  float super_mins[kBlockGroups / kGroupsPerSuper * kPanelWidth];    // [supers][16]
  // [groups * parts][16]: s, s; where quads are summed, s as one word (kFloatTotals: a float)
  int16_t scale_pairs[2 * kBlockGroups * 2 * kPanelWidth];
  int16_t min_pairs[kBlockGroups / 2 * 2 * kPanelWidth];  // kSuper [groups / 2][16]: m, next m

  const uint8_t* values;  // [groups][8 quads][16][4], or 4 bits each as in the panel
};

// Whether sums of quads of 4-bit values are scaled and added up as floats within a super-block, see
// Quads::Int4InSuper.
constexpr bool kFloatTotals = HWY_ARCH_X86;

HWY_INLINE VU8 LowNibbles(VU8 bytes) { return hn::And(bytes, hn::Set(DU8(), 15)); }

HWY_INLINE VU8 HighNibbles(VU8 bytes) {
  constexpr hn::Repartition<uint16_t, DU8> d16;
  return LowNibbles(hn::BitCast(DU8(), hn::ShiftRight<4>(hn::BitCast(d16, bytes))));
}

// Bytes of two quads whose values are kept in 4 bits, or not.
template <bool kNibbles>
constexpr size_t kTwoQuadsBytes = kNibbles ? kQuadBytes : 2 * kQuadBytes;

// The values of two quads as bytes.
template <bool kNibbles>
HWY_INLINE void LoadTwoQuads(const uint8_t* from, VU8 (&w0)[kVecs], VU8 (&w1)[kVecs]) {
  constexpr DU8 d8;
  for (size_t v = 0; v < kVecs; ++v) {
    const VU8 first = hn::Load(d8, from + v * kLanes * kQuad);
    w0[v] = kNibbles ? LowNibbles(first) : first;
    w1[v] = kNibbles ? HighNibbles(first) : hn::Load(d8, from + kQuadBytes + v * kLanes * kQuad);
  }
}

// 4-bit values become bytes.
void UnpackNibbles(const uint8_t* HWY_RESTRICT from, size_t num_groups, uint8_t* HWY_RESTRICT to) {
  for (size_t quad = 0; quad < num_groups * kQuadsPerGroup; quad += 2) {
    VU8 w0[kVecs], w1[kVecs];
    LoadTwoQuads<true>(from, w0, w1);
    for (size_t v = 0; v < kVecs; ++v) {
      hn::Store(w0[v], DU8(), to + v * kLanes * kQuad);
      hn::Store(w1[v], DU8(), to + kQuadBytes + v * kLanes * kQuad);
    }
    from += kTwoQuadsBytes<true>;
    to += kTwoQuadsBytes<false>;
  }
}

// The scales of the groups from first_group on, in the form the products want.
void ExpandScales(const PackedMatrix::Panels& w, size_t panel, size_t first_group,
                  size_t num_groups, WeightBlock& block) {
  constexpr DF32 df;
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
  const bool quads = SumsQuads();
  const auto store_scale = [&](auto scale, int16_t* to) HWY_ATTR {
    if (!quads) {
      store_pair(scale, scale, to);
    } else if (kFloatTotals && w.form == PanelForm::kInt4) {
      hn::Store(hn::ConvertTo(df, scale), df, reinterpret_cast<float*>(to));
    } else {
      hn::Store(scale, di, reinterpret_cast<int32_t*>(to));
    }
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
            store_scale(scale, block.scale_pairs + 2 * ((g + j) * kPanelWidth + c));
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
            store_scale(s0, pairs);
            store_scale(s1, pairs + 2 * kPanelWidth);
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

// How values of each width are multiplied with the activations of a row and summed, two quads at a
// time. Start gives a sum of a group with the zero point taken out, Finish that of each channel. In
// a super-block a sum covers kQuadsPerSum quads and begins with a pair of activation sums, or with
// zero; AddScaled adds that of each channel, times its scale, to a total over kGroupsPerTotal
// groups.

#if SPA_HAS_QUAD_DOT

template <int kZeroPoint>
struct QuadDotSums {
  static constexpr size_t kQuadsPerSum = 8;
  using Sum = VI32;
  static HWY_INLINE Sum Start(const ActivationGroup& a) {
    if constexpr (kZeroPoint == kZeroPoint4) return BroadcastWord(&a.own_scale_quads.zero4);
    if constexpr (kZeroPoint == kZeroPoint8) return BroadcastWord(&a.own_scale_quads.zero8);
    if constexpr (kZeroPoint == kZeroPoint6) {
      static_assert(kZeroPoint6 == 4 * kZeroPoint4);
      return hn::ShiftLeft<2>(BroadcastWord(&a.own_scale_quads.zero4));
    }
    return hn::Zero(DI32());
  }
  static HWY_INLINE Sum StartAt(const ActivationGroup& a, size_t part) {
    return BroadcastWord(a.zero6_quads + part);
  }
  static constexpr bool kOneByOne = true;
  static HWY_INLINE void AddQuad(Sum (&sums)[kVecs], const VU8 (&w)[kVecs], const int8_t* q) {
    // Signed weights become unsigned.
    const VU8 flip = hn::Set(DU8(), kZeroPoint == kZeroPoint8 ? 128 : 0);
    for (size_t v = 0; v < kVecs; ++v) sums[v] = AddQuadDot(sums[v], hn::Xor(w[v], flip), q);
  }
  static HWY_INLINE VI32 Finish(Sum sum) { return sum; }
  static constexpr size_t kGroupsPerTotal = kGroupsPerSuper;
  using Total = VI32;
  static HWY_INLINE Total AddScaled(Total total, Sum sum, VI16 scales) {
    return hn::Add(total, hn::Mul(sum, hn::BitCast(DI32(), scales)));
  }
  static HWY_INLINE VF32 ToFloat(Total total) { return hn::ConvertTo(DF32(), total); }
};

// Four groups of 32 products of 15 * 127, times scales below 64, stay below 2^24: floats hold them
// exactly. Intel takes two instructions to multiply words of 32 bits, and one more to add them.
struct QuadDotFloats : QuadDotSums<kZeroPoint4> {
  static constexpr size_t kGroupsPerTotal = 4;
  using Total = VF32;
  static HWY_INLINE Total AddScaled(Total total, Sum sum, VI16 scales) {
    constexpr DF32 df;
    return hn::MulAdd(hn::ConvertTo(df, sum), hn::BitCast(df, scales), total);
  }
  static HWY_INLINE VF32 ToFloat(Total total) { return total; }
};

struct Quads {
  using Int4 = QuadDotSums<kZeroPoint4>;
  using Int4InSuper = std::conditional_t<kFloatTotals, QuadDotFloats, Int4>;
  using Int6 = QuadDotSums<kZeroPoint6>;
  using Int6InSuper = Int6;
  using Int6InHalves = Int6;
  using Int8 = QuadDotSums<HWY_ARCH_X86 ? kZeroPoint8 : 0>;  // Arm multiplies signed bytes
};

#if SPA_HAS_AMX_TILES
// Tiles have summed the products of whole groups before they are scaled.
template <class Arithmetic>
struct InTiles : Arithmetic {
  static constexpr bool kSigned = false;
};
struct SignedInTiles : QuadDotSums<0> {
  static constexpr bool kSigned = true;
};
struct Tiles {
  using Int4 = InTiles<Quads::Int4>;
  using Int4InSuper = InTiles<Quads::Int4InSuper>;
  using Int6 = InTiles<Quads::Int6>;
  using Int6InSuper = InTiles<Quads::Int6InSuper>;
  using Int6InHalves = Quads::Int6InHalves;  // sums over half a group
  using Int8 = SignedInTiles;
};
#endif

#endif  // SPA_HAS_QUAD_DOT

template <class Arithmetic>
concept MadeInTiles = requires(Arithmetic a) {
  a.kSigned;
};

#if SPA_HAS_PAIR_DOT

template <class V>
HWY_INLINE void AddEach(V (&sums)[kVecs], V (&products)[kVecs]) {
  KeepOrder(products);
  for (size_t v = 0; v < kVecs; ++v) sums[v] = hn::Add(sums[v], products[v]);
  KeepOrder(sums);
}

struct Int4Pairs {
  // 16 bits hold the sum over the whole group: 8 quads of 2 products of 15 * 127.
  static constexpr size_t kQuadsPerSum = 8;
  using Sum = VI16;
  static HWY_INLINE Sum Start(const ActivationGroup& a) { return BroadcastPair(a.own_scale.zero4); }
  static constexpr bool kOneByOne = true;
  static HWY_INLINE void AddQuad(Sum (&sums)[kVecs], const VU8 (&w)[kVecs], const int8_t* q) {
    const VI8 a = BroadcastQuad(q);
    VI16 products[kVecs];
    for (size_t v = 0; v < kVecs; ++v) products[v] = PairDot(w[v], a);
    AddEach(sums, products);
  }
  static HWY_INLINE VI32 Finish(Sum sum) { return PairSum(sum); }
  static constexpr size_t kGroupsPerTotal = kGroupsPerSuper;
  using Total = VI32;
  static HWY_INLINE Total AddScaled(Total total, Sum sum, VI16 scale_pairs) {
    return hn::Add(total, PairSum(sum, scale_pairs));
  }
  static HWY_INLINE VF32 ToFloat(Total total) { return hn::ConvertTo(DF32(), total); }
};

struct Int6Pairs {
  using Sum = VI32;
  static HWY_INLINE Sum Start(const ActivationGroup& a) {
    return PairSum(BroadcastPair(a.own_scale.sums), -kZeroPoint6, -kZeroPoint6);
  }
  static constexpr bool kOneByOne = false;
  static HWY_INLINE void AddTwoQuads(Sum (&sums)[kVecs], const VU8 (&w0)[kVecs],
                                     const VU8 (&w1)[kVecs], const int8_t* q) {
    const VI8 a0 = BroadcastQuad(q), a1 = BroadcastQuad(q + kQuad);
    VI32 products[kVecs];
    for (size_t v = 0; v < kVecs; ++v) {
      // 16 bits hold two quads: 2 * 2 products of 63 * 127.
      products[v] = PairSum(hn::Add(PairDot(w0[v], a0), PairDot(w1[v], a1)));
    }
    AddEach(sums, products);
  }
  static HWY_INLINE VI32 Finish(Sum sum) { return sum; }
};

struct Int6InSuperPairs {
  // 16 bits hold the sum over half a group: 4 quads of 2 products of 32 * 127, once the zero point
  // is taken out, or of 31 * 127 for 5-bit values without one. Until then they wrap around.
  static constexpr size_t kQuadsPerSum = 4;
  using Sum = VI16;
  static HWY_INLINE Sum StartAt(const ActivationGroup& a, size_t part) {
    return BroadcastPair(a.zero6[part]);
  }
  static constexpr bool kOneByOne = true;
  static HWY_INLINE void AddQuad(Sum (&sums)[kVecs], const VU8 (&w)[kVecs], const int8_t* q) {
    Int4Pairs::AddQuad(sums, w, q);
  }
  static constexpr size_t kGroupsPerTotal = kGroupsPerSuper;
  using Total = VI32;
  static HWY_INLINE Total AddScaled(Total total, Sum sum, VI16 scale_pairs) {
    return Int4Pairs::AddScaled(total, sum, scale_pairs);
  }
  static HWY_INLINE VF32 ToFloat(Total total) { return hn::ConvertTo(DF32(), total); }
};

struct Int8Pairs {
  using Sum = VI32;
  static HWY_INLINE Sum Start(const ActivationGroup&) { return hn::Zero(DI32()); }
  static constexpr bool kOneByOne = true;
  static HWY_INLINE void AddQuad(Sum (&sums)[kVecs], const VU8 (&w)[kVecs], const int8_t* q) {
    const VI8 a = BroadcastQuad(q);
    VI16 pairs[kVecs];
    for (size_t v = 0; v < kVecs; ++v) pairs[v] = PairDotSigned(hn::BitCast(DI8(), w[v]), a);
    KeepOrder(pairs);
    VI32 products[kVecs];
    for (size_t v = 0; v < kVecs; ++v) products[v] = PairSum(pairs[v]);
    AddEach(sums, products);
  }
  static HWY_INLINE VI32 Finish(Sum sum) { return sum; }
};

struct Pairs {
  using Int4 = Int4Pairs;
  using Int4InSuper = Int4Pairs;
  using Int6 = Int6Pairs;
  using Int6InSuper = Int6InSuperPairs;
  using Int6InHalves = Int6InSuperPairs;
  using Int8 = Int8Pairs;
};

#endif  // SPA_HAS_PAIR_DOT

// A group of each row of a product: of one tile of activations, or of two.
struct RowGroups {
  const ActivationGroup* HWY_RESTRICT tiles[kRowsAtATime / kTileRows];
  // From the first group on, [groups][16 rows][16], if made in AMX tiles.
  const int32_t* HWY_RESTRICT tile_sums = nullptr;

  HWY_INLINE const ActivationGroup& Row(size_t row) const {
    return tiles[row / kTileRows][row % kTileRows];
  }
  HWY_INLINE RowGroups Skip(size_t num_groups) const {
    RowGroups later = *this;
    later.Advance(num_groups);
    return later;
  }
  // Instead of an assignment, which Clang 14 cannot make for an array of restricted pointers.
  HWY_INLINE void Advance(size_t num_groups) {
    for (auto& tile : tiles) tile += num_groups * kTileRows;
  }
};

// acc += scale * sums (+ min * sum of the activations)
template <bool kHasMin, size_t kRows>
HWY_INLINE void ScaleSums(const VI32 (&sums)[kRows][kVecs], const RowGroups& a, const float* scales,
                          const float* mins, VF32 (&floats)[kRows][kVecs], float* acc) {
  constexpr DF32 df;
  for (size_t v = 0; v < kVecs; ++v) {
    const VF32 scale = hn::Load(df, scales + v * kLanes);
    ForEach<kRows>([&](size_t r) HWY_ATTR {
      float* to = acc + r * kPanelWidth + v * kLanes;
      if constexpr (!kWide) floats[r][v] = hn::Load(df, to);
      floats[r][v] = hn::MulAdd(hn::ConvertTo(df, sums[r][v]),
                                hn::Mul(scale, hn::Set(df, a.Row(r).scale)), floats[r][v]);
      if constexpr (kHasMin) {
        floats[r][v] = hn::MulAdd(hn::Load(df, mins + v * kLanes), hn::Set(df, a.Row(r).scaled_sum),
                                  floats[r][v]);
      }
      if constexpr (!kWide) hn::Store(floats[r][v], df, to);
    });
  }
}

// floats: [kRows] of acc if the sums stay in registers
template <size_t kRows>
HWY_INLINE void LoadSums(const float* acc, VF32 (&floats)[kRows][kVecs]) {
  if constexpr (!kWide) return;
  ForEach<kRows>([&](size_t r)
                     HWY_ATTR { floats[r][0] = hn::Load(DF32(), acc + r * kPanelWidth); });
}
template <size_t kRows>
HWY_INLINE void StoreSums(const VF32 (&floats)[kRows][kVecs], float* acc) {
  if constexpr (!kWide) return;
  ForEach<kRows>([&](size_t r)
                     HWY_ATTR { hn::Store(floats[r][0], DF32(), acc + r * kPanelWidth); });
}

// The packed weights of a block, to be brought from memory into L2 while the block before it is
// multiplied. Unpacking alone leaves the memory idle during the products, and with few rows that is
// most of the time. The tiles share the lines of each group, so that memory is busy all the time.
class Prefetch {
 public:
  Prefetch() = default;  // nothing to fetch
  Prefetch(const PackedMatrix::Panels& w, size_t panel, size_t first_group, size_t num_groups)
      : values_per_group_(w.values_bytes / num_groups),
        scales_per_group_(w.scales_bytes / num_groups),
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
#if SPA_HAS_MATRIX_DOT
// Rows are taken two at a time, an odd last one alone.
template <class Arithmetic, bool kNibbles, size_t kRows>
HWY_INLINE void AddQuads(const uint8_t* HWY_RESTRICT values, const RowGroups& a, size_t quad,
                         VI32 (&sums)[kRows][kVecs]) {
  const auto inputs = [&](size_t r) HWY_ATTR { return a.Row(r).q + quad * kQuad; };
  VU8 w0[kVecs], w1[kVecs];
  LoadTwoQuads<kNibbles>(values, w0, w1);
  if constexpr (kRows % 2 != 0) {
    Arithmetic::AddQuad(sums[kRows - 1], w0, inputs(kRows - 1));
    Arithmetic::AddQuad(sums[kRows - 1], w1, inputs(kRows - 1) + kQuad);
  }
  // 8 inputs of the first two channels of a vector, and of the last two
  for (size_t v = 0; v < kVecs; ++v) Interleave<uint32_t>(w0[v], w1[v]);
  ForEach<kRows / 2>([&](size_t pair) HWY_ATTR {
    const size_t r = 2 * pair;
    for (size_t v = 0; v < kVecs; ++v) {
      sums[r][v] = AddMatrixDot(sums[r][v], w0[v], inputs(r), inputs(r + 1));
      sums[r + 1][v] = AddMatrixDot(sums[r + 1][v], w1[v], inputs(r), inputs(r + 1));
    }
  });
}
#else
template <class Arithmetic, bool kNibbles, size_t kRows>
HWY_INLINE void AddQuads(const uint8_t* HWY_RESTRICT values, const RowGroups& a, size_t quad,
                         typename Arithmetic::Sum (&sums)[kRows][kVecs]) {
  if constexpr (!kNibbles && Arithmetic::kOneByOne) {
    for (size_t i = 0; i < 2; ++i) {
      VU8 w[kVecs];
      for (size_t v = 0; v < kVecs; ++v) {
        w[v] = hn::Load(DU8(), values + i * kQuadBytes + v * kLanes * kQuad);
      }
      ForEach<kRows>([&](size_t r) HWY_ATTR {
        Arithmetic::AddQuad(sums[r], w, a.Row(r).q + (quad + i) * kQuad);
      });
    }
  } else {
    VU8 w0[kVecs], w1[kVecs];
    LoadTwoQuads<kNibbles>(values, w0, w1);
    ForEach<kRows>([&](size_t r) HWY_ATTR {
      const int8_t* q = a.Row(r).q + quad * kQuad;
      if constexpr (Arithmetic::kOneByOne) {
        Arithmetic::AddQuad(sums[r], w0, q);
        Arithmetic::AddQuad(sums[r], w1, q + kQuad);
      } else {
        Arithmetic::AddTwoQuads(sums[r], w0, w1, q);
      }
    });
  }
}
#endif

// Where AddQuads takes two rows at a time, a vector holds the sums of two channels of both. Turns
// those of four channels of each row into these, and these into those.
template <class Sum, size_t kRows>
HWY_INLINE void ExchangeInPairs([[maybe_unused]] Sum (&sums)[kRows][kVecs]) {
#if SPA_HAS_MATRIX_DOT
  ForEach<kRows / 2>([&](size_t pair) HWY_ATTR {
    for (size_t v = 0; v < kVecs; ++v) {
      Interleave<uint64_t>(sums[2 * pair][v], sums[2 * pair + 1][v]);
    }
  });
#endif
}

// Adds the products of the quads [first, end) of the group that a has come to, which is number g of
// the block.
template <class Arithmetic, bool kNibbles, size_t kRows>
HWY_INLINE void AddProducts(const uint8_t* HWY_RESTRICT values, const RowGroups& a, size_t g,
                            size_t first, size_t end,
                            typename Arithmetic::Sum (&sums)[kRows][kVecs]) {
  if constexpr (MadeInTiles<Arithmetic>) {
    const int32_t* HWY_RESTRICT made = a.tile_sums + g * kAmxRows * kPanelWidth;
    ForEach<kRows>([&](size_t r) HWY_ATTR {
      sums[r][0] = hn::Add(sums[r][0], hn::Load(DI32(), made + r * kPanelWidth));
    });
  } else {
    ExchangeInPairs(sums);
    HWY_UNROLL(4)
    for (size_t quad = first; quad < end; quad += 2) {
      AddQuads<Arithmetic, kNibbles>(values + quad / 2 * kTwoQuadsBytes<kNibbles>, a, quad, sums);
    }
    ExchangeInPairs(sums);
  }
}

// What is added to the sums of kRows rows, by the form of the scales. acc: [kRows][16]

template <class ArithmeticOfForm, bool kNibbles, bool kHasMin>
struct Groups {
  using Arithmetic = ArithmeticOfForm;
  template <size_t kRows>
  static HWY_NOINLINE HWY_FLATTEN void Add(RowGroups a, const WeightBlock& w, size_t num_groups,
                                           Prefetch::Lines next, float* HWY_RESTRICT acc) {
    using Sum = typename Arithmetic::Sum;
    const uint8_t* HWY_RESTRICT values = w.values;
    const float* HWY_RESTRICT scales = w.scales;
    const float* HWY_RESTRICT mins = w.mins;
    VF32 floats[kRows][kVecs];
    LoadSums(acc, floats);
    for (size_t g = 0; g < num_groups; ++g, a.Advance(1)) {
      next.FetchGroup();
      Sum sums[kRows][kVecs];
      ForEach<kRows>([&](size_t r) HWY_ATTR {
        const Sum start = kHasMin ? hn::Zero(hn::DFromV<Sum>()) : Arithmetic::Start(a.Row(r));
        for (size_t v = 0; v < kVecs; ++v) sums[r][v] = start;
      });
      AddProducts<Arithmetic, kNibbles>(values, a, g, 0, kQuadsPerGroup, sums);
      values += kQuadsPerGroup / 2 * kTwoQuadsBytes<kNibbles>;
      VI32 totals[kRows][kVecs];
      ForEach<kRows>([&](size_t r) HWY_ATTR {
        for (size_t v = 0; v < kVecs; ++v) totals[r][v] = Arithmetic::Finish(sums[r][v]);
      });
      ScaleSums<kHasMin>(totals, a, scales, mins, floats, acc);
      scales += kPanelWidth;
      mins += kPanelWidth;
    }
    StoreSums(floats, acc);
  }
};

// kParts: how many scales a group has. Types with two have a zero point, those with one a min.
template <class ArithmeticOfForm, bool kNibbles, size_t kParts>
struct SuperBlocks {
  using Arithmetic = ArithmeticOfForm;
  static constexpr bool kHasMin = kParts == 1;

  template <size_t kRows>
  static HWY_NOINLINE HWY_FLATTEN void Add(RowGroups a, const WeightBlock& w, size_t num_groups,
                                           Prefetch::Lines next, float* HWY_RESTRICT acc) {
    using Sum = typename Arithmetic::Sum;
    using Total = typename Arithmetic::Total;
    constexpr size_t kQuadsPerSum = HWY_MIN(Arithmetic::kQuadsPerSum, kQuadsPerGroup / kParts);
    constexpr DI16 d16;
    constexpr size_t kPair = 2 * kLanes;  // 16-bit words of a vector of channels
    const uint8_t* HWY_RESTRICT values = w.values;
    const int16_t* HWY_RESTRICT scale_pairs = w.scale_pairs;
    const int16_t* HWY_RESTRICT min_pairs = w.min_pairs;
    for (size_t g = 0; g < num_groups; g += kGroupsPerSuper) {
      VF32 totals[kRows][kVecs];
      ForEach<kRows>([&](size_t r) HWY_ATTR {
        for (size_t v = 0; v < kVecs; ++v) totals[r][v] = hn::Zero(DF32());
      });
      for (size_t from = 0; from < kGroupsPerSuper; from += Arithmetic::kGroupsPerTotal) {
        Total parts[kRows][kVecs];
        ForEach<kRows>([&](size_t r) HWY_ATTR {
          for (size_t v = 0; v < kVecs; ++v) parts[r][v] = hn::Zero(hn::DFromV<Total>());
        });
        for (size_t j = from; j < from + Arithmetic::kGroupsPerTotal; ++j) {
          const RowGroups group = a.Skip(j);
          next.FetchGroup();
          HWY_UNROLL(4)
          for (size_t first = 0; first < kQuadsPerGroup; first += kQuadsPerSum) {
            const size_t part = first * kParts / kQuadsPerGroup;
            Sum sums[kRows][kVecs];
            ForEach<kRows>([&](size_t r) HWY_ATTR {
              Sum start = hn::Zero(hn::DFromV<Sum>());
              if constexpr (!kHasMin) start = Arithmetic::StartAt(group.Row(r), part);
              for (size_t v = 0; v < kVecs; ++v) sums[r][v] = start;
            });
            AddProducts<Arithmetic, kNibbles>(values, group, g + j, first, first + kQuadsPerSum,
                                              sums);
            ForEach<kRows>([&](size_t r) HWY_ATTR {
              for (size_t v = 0; v < kVecs; ++v) {
                const VI16 scales = hn::Load(d16, scale_pairs + part * 2 * kPanelWidth + v * kPair);
                parts[r][v] = Arithmetic::AddScaled(parts[r][v], sums[r][v], scales);
              }
              KeepOrder(parts[r]);
            });
          }
          values += kQuadsPerGroup / 2 * kTwoQuadsBytes<kNibbles>;
          scale_pairs += kParts * 2 * kPanelWidth;
        }
        ForEach<kRows>([&](size_t r) HWY_ATTR {
          for (size_t v = 0; v < kVecs; ++v) {
            // At most two are added, so the sum is rounded once, as that of integers is.
            const VF32 part = Arithmetic::ToFloat(parts[r][v]);
            constexpr bool kIsWhole = Arithmetic::kGroupsPerTotal == kGroupsPerSuper;
            totals[r][v] = kIsWhole ? part : hn::Add(totals[r][v], part);
          }
        });
      }
      constexpr DF32 df;
      const size_t super = g / kGroupsPerSuper * kPanelWidth;
      ForEach<kRows>([&](size_t r) HWY_ATTR {
        for (size_t v = 0; v < kVecs; ++v) {
          const size_t channel = super + v * kLanes;
          VF32 sum = hn::Mul(totals[r][v], hn::Load(df, w.super_scales + channel));
          if constexpr (kHasMin) {
            VI32 mins = hn::Zero(DI32());
            for (size_t j = 0; j < kGroupsPerSuper; j += 2) {
              const VI16 pair = hn::Load(d16, min_pairs + j * kPanelWidth + v * kPair);
              mins = AddPairDot(mins, pair, a.Skip(j).Row(r).sum_pair);
            }
            sum = hn::MulAdd(hn::ConvertTo(df, mins), hn::Load(df, w.super_mins + channel), sum);
          }
          float* to = acc + r * kPanelWidth + v * kLanes;
          sum = hn::MulAdd(sum, hn::Set(df, a.Row(r).scale), hn::Load(df, to));
          hn::Store(sum, df, to);
        }
      });
      min_pairs += kGroupsPerSuper * kPanelWidth;
      a.Advance(kGroupsPerSuper);
    }
  }
};

// Form::Add of any num_rows <= kRows.
template <class Form, size_t kRows = kRowsAtATime>
HWY_INLINE void AddRows(size_t num_rows, const RowGroups& a, const WeightBlock& w,
                        size_t num_groups, Prefetch::Lines next, float* acc) {
  if constexpr (kRows > 1) {
    if (num_rows < kRows) {
      return AddRows<Form, kRows - 1>(num_rows, a, w, num_groups, next, acc);
    }
  }
  Form::template Add<kRows>(a, w, num_groups, next, acc);
}

// The thread's own. On the heap: thread-local storage costs every thread of the program its size.
WeightBlock& OwnBlock() {
  thread_local Mat<WeightBlock> block;
  block.Resize(1, 1);
  return *block.data();
}

class PartTiles;  // amx_tiles-inl.h
struct NoTiles {
  NoTiles(const MatMulPart&, size_t) {}
};

template <bool kNibbles, class Form>
void MultiplyIntPart(const Activations::Int8Rows& x, const PackedMatrix::Panels& w,
                     const float* bias, const MatMulPart& part, MatView<float> y) {
  WeightBlock& block = OwnBlock();
  PartSums sums(part);
  constexpr bool kTiles = MadeInTiles<typename Form::Arithmetic>;
  [[maybe_unused]] std::conditional_t<kTiles, PartTiles, NoTiles> tiles(part, kBlockGroups);
  const size_t blocks_per_panel = (x.num_groups + kBlockGroups - 1) / kBlockGroups;
  const size_t num_blocks = blocks_per_panel * part.num_panels;
  // With many rows a block of activations meets all panels before the next comes from L3. Few rows
  // fit in L2 whole, and their weights are best read as they lie in memory.
  const bool panel_by_panel = !kTiles && part.num_rows <= kFewRows;
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
    if constexpr (kTiles) {
      if (panel == 0) tiles.Gather(x, first, count);
    }
    Prefetch prefetch;
    if (b + 1 < num_blocks) {
      prefetch =
          Prefetch(w, part.first_panel + panel_of(b + 1), first_group_of(b + 1), x.num_groups);
    }
    const size_t num_tiles = (part.num_rows + kRowsAtATime - 1) / kRowsAtATime;
    for (size_t i = 0; i < part.num_rows; i += kRowsAtATime) {
      const Prefetch::Lines next = prefetch.ForTile(i / kRowsAtATime, num_tiles);
      RowGroups a;
      for (size_t t = 0; t < kRowsAtATime / kTileRows; ++t) {
        a.tiles[t] = x.Tile(part.first_tile + i / kTileRows + t) + first * kTileRows;
      }
      if constexpr (kTiles) {
        a.tile_sums = tiles.template Sums<Form::Arithmetic::kSigned>(i, block.values, count);
      }
      AddRows<Form>(HWY_MIN(kRowsAtATime, part.num_rows - i), a, block, count, next,
                    sums.Row(panel, i));
    }
  }
  sums.WriteTo(y, bias);
}

// Few rows of 4-bit weights take them apart as they are multiplied.
template <class Sums, bool kNibbles>
void MultiplyInt4(const Activations::Int8Rows& x, const PackedMatrix::Panels& w, const float* bias,
                  const MatMulPart& part, MatView<float> y) {
  using Int4 = typename Sums::Int4;
  using Int4InSuper = typename Sums::Int4InSuper;
  switch (w.scale_form) {
    case ScaleForm::kHalf:
      return MultiplyIntPart<kNibbles, Groups<Int4, kNibbles, false>>(x, w, bias, part, y);
    case ScaleForm::kHalfMin:
      return MultiplyIntPart<kNibbles, Groups<Int4, kNibbles, true>>(x, w, bias, part, y);
    default:
      return MultiplyIntPart<kNibbles, SuperBlocks<Int4InSuper, kNibbles, 1>>(x, w, bias, part, y);
  }
}

// Sums: Quads or Pairs
template <class Sums>
void MultiplyIntBy(const Activations::Int8Rows& x, const PackedMatrix::Panels& w, const float* bias,
                   const MatMulPart& part, MatView<float> y) {
  using Int6 = typename Sums::Int6;
  using Int6InSuper = typename Sums::Int6InSuper;
  using Int6InHalves = typename Sums::Int6InHalves;
  using Int8 = typename Sums::Int8;
  switch (w.form) {
    case PanelForm::kInt4:
      return part.num_rows <= kFewTiles * kTileRows
                 ? MultiplyInt4<Sums, true>(x, w, bias, part, y)
                 : MultiplyInt4<Sums, false>(x, w, bias, part, y);
    case PanelForm::kInt6:
      switch (w.scale_form) {
        case ScaleForm::kHalf:
          return MultiplyIntPart<false, Groups<Int6, false, false>>(x, w, bias, part, y);
        case ScaleForm::kHalfMin:
          return MultiplyIntPart<false, Groups<Int6, false, true>>(x, w, bias, part, y);
        case ScaleForm::kSuper:
          return MultiplyIntPart<false, SuperBlocks<Int6InSuper, false, 1>>(x, w, bias, part, y);
        default:
          return MultiplyIntPart<false, SuperBlocks<Int6InHalves, false, 2>>(x, w, bias, part, y);
      }
    case PanelForm::kInt8:
      return MultiplyIntPart<false, Groups<Int8, false, false>>(x, w, bias, part, y);
    default:
      HWY_ABORT("not a form of integers");
  }
}

void MultiplyInt(const Activations::Int8Rows& x, const PackedMatrix::Panels& w, const float* bias,
                 const MatMulPart& part, MatView<float> y) {
#if SPA_HAS_AMX_TILES
  static_assert(kFewTiles * kTileRows <= kFewRows);  // tiles take bytes
  if (HasAmx() && part.num_rows > kFewRows) return MultiplyIntBy<Tiles>(x, w, bias, part, y);
#endif
#if SPA_HAS_QUAD_DOT
  if (SumsQuads()) return MultiplyIntBy<Quads>(x, w, bias, part, y);
#endif
#if SPA_HAS_PAIR_DOT
  return MultiplyIntBy<Pairs>(x, w, bias, part, y);
#endif
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
