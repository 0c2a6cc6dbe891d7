// The float micro-kernel of products and of attention: a few rows by 16 columns of fused
// multiply-adds, with weights stored as f32, f16, bf16 or bytes.
#include <hwy/highway.h>

#include "kernels/panels.h"

#if defined(SPA_KERNELS_FMA_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPA_KERNELS_FMA_TILE_INL_H_
#undef SPA_KERNELS_FMA_TILE_INL_H_
#else
#define SPA_KERNELS_FMA_TILE_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DTile = hn::CappedTag<float, kPanelWidth>;
using VTile = hn::Vec<DTile>;
constexpr size_t kTileLanes = hn::MaxLanes(DTile());
constexpr size_t kTileVecs = kPanelWidth / kTileLanes;

// With AVX2 a tile of 6 x 16 takes 12 sums, 2 weights and 1 input of 16 registers.
constexpr size_t kFmaRows = 6;
constexpr size_t kLineBytes = 64;  // of a cache

// 16 consecutive stored elements as floats.

struct LoadF32 {
  using Element = float;
  static HWY_INLINE void Load(const float* w, VTile (&to)[kTileVecs]) {
    for (size_t v = 0; v < kTileVecs; ++v) to[v] = hn::Load(DTile(), w + v * kTileLanes);
  }
};

struct LoadF16 {
  using Element = hwy::float16_t;
  static HWY_INLINE void Load(const hwy::float16_t* w, VTile (&to)[kTileVecs]) {
    constexpr hn::Rebind<hwy::float16_t, DTile> d16;
    for (size_t v = 0; v < kTileVecs; ++v) {
      to[v] = hn::PromoteTo(DTile(), hn::Load(d16, w + v * kTileLanes));
    }
  }
};

struct LoadBF16 {
  using Element = hwy::bfloat16_t;
  // Word c holds columns c and c + 8 (PanelForm::kBF16): a shift and a mask give them in order.
  static HWY_INLINE void Load(const hwy::bfloat16_t* w, VTile (&to)[kTileVecs]) {
    constexpr hn::CappedTag<uint32_t, kPanelWidth / 2> dw;
    constexpr hn::Repartition<float, decltype(dw)> df;
    const uint32_t* words = reinterpret_cast<const uint32_t*>(w);
    const auto high_half = hn::Set(dw, 0xffff0000u);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    const auto pair = hn::Load(dw, words);
    to[0] = hn::Combine(DTile(), hn::BitCast(df, hn::And(pair, high_half)),
                        hn::BitCast(df, hn::ShiftLeft<16>(pair)));
#else
    for (size_t v = 0; v < kTileVecs / 2; ++v) {
      const auto pair = hn::Load(dw, words + v * kTileLanes);
      to[v] = hn::BitCast(df, hn::ShiftLeft<16>(pair));
      to[kTileVecs / 2 + v] = hn::BitCast(df, hn::And(pair, high_half));
    }
#endif
  }
};

struct LoadInt8 {
  using Element = int8_t;
  static HWY_INLINE void Load(const int8_t* w, VTile (&to)[kTileVecs]) {
    constexpr hn::Rebind<int8_t, DTile> d8;
    constexpr hn::RebindToSigned<DTile> di;
    for (size_t v = 0; v < kTileVecs; ++v) {
      to[v] = hn::ConvertTo(DTile(), hn::PromoteTo(di, hn::Load(d8, w + v * kTileLanes)));
    }
  }
};

// A row-major operand: row r starts at data + r * stride.
template <typename T>
struct TileView {
  T* data;
  size_t stride;
};

// Memory that will be read soon, prefetched while a tile is multiplied: this many cache lines per
// kFetchInputs inputs.
struct Fetch {
  const std::byte* next = nullptr;
  size_t lines = 0;
};
constexpr size_t kFetchInputs = 8;

// Memory to prefetch over several products, a little with each.
class FetchPlan {
 public:
  FetchPlan() = default;
  // num_inputs: of all the products together
  FetchPlan(const void* first, size_t bytes, size_t num_inputs)
      : next_(static_cast<const std::byte*>(first)),
        lines_left_(bytes / kLineBytes),
        lines_per_step_((lines_left_ * kFetchInputs + num_inputs - 1) / num_inputs) {}

  // The share of a product with this many inputs.
  Fetch Next(size_t num_inputs) {
    const Fetch fetch{next_, lines_left_ > 0 ? lines_per_step_ : 0};
    const size_t lines = HWY_MIN(lines_left_, fetch.lines * (num_inputs / kFetchInputs));
    lines_left_ -= lines;
    next_ += lines * kLineBytes;
    return fetch;
  }

 private:
  const std::byte* next_ = nullptr;
  size_t lines_left_ = 0;
  size_t lines_per_step_ = 0;
};

// sums[r][0..16) += sum over i of x[r][i] w[i][0..16), i ascending
template <class Loader, size_t kRows>
HWY_NOINLINE void AddInputs(TileView<const float> x, TileView<const typename Loader::Element> w,
                            size_t num_inputs, TileView<float> sums, Fetch fetch) {
  constexpr DTile df;
  VTile acc[kRows][kTileVecs];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kTileVecs; ++v) {
      acc[r][v] = hn::Load(df, sums.data + r * sums.stride + v * kTileLanes);
    }
  }
  const float* HWY_RESTRICT inputs = x.data;
  const typename Loader::Element* HWY_RESTRICT weights = w.data;
  const auto add = [&](size_t i) HWY_ATTR {
    VTile weight[kTileVecs];
    Loader::Load(weights, weight);
    for (size_t r = 0; r < kRows; ++r) {
      const VTile input = hn::Set(df, inputs[r * x.stride + i]);
      for (size_t v = 0; v < kTileVecs; ++v) acc[r][v] = hn::MulAdd(input, weight[v], acc[r][v]);
    }
    weights += w.stride;
  };
  size_t i = 0;
  for (; i + kFetchInputs <= num_inputs; i += kFetchInputs) {
    for (size_t line = 0; line < fetch.lines; ++line, fetch.next += kLineBytes) {
      __builtin_prefetch(fetch.next, 0, 2);
    }
    HWY_UNROLL(4)
    for (size_t j = 0; j < kFetchInputs; ++j) add(i + j);
  }
  for (; i < num_inputs; ++i) add(i);
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kTileVecs; ++v) {
      hn::Store(acc[r][v], df, sums.data + r * sums.stride + v * kTileLanes);
    }
  }
}

// The same for any num_rows <= kRows.
template <class Loader, size_t kRows = kFmaRows>
void AddInputsOfTile(size_t num_rows, TileView<const float> x,
                     TileView<const typename Loader::Element> w, size_t num_inputs,
                     TileView<float> sums, Fetch fetch) {
  if constexpr (kRows > 1) {
    if (num_rows < kRows) {
      return AddInputsOfTile<Loader, kRows - 1>(num_rows, x, w, num_inputs, sums, fetch);
    }
  }
  AddInputs<Loader, kRows>(x, w, num_inputs, sums, fetch);
}

constexpr size_t NumFmaTiles(size_t num_rows) { return (num_rows + kFmaRows - 1) / kFmaRows; }

// The same for any number of rows, in tiles of nearly equal height: one or two leftover rows would
// take as long as four.
template <class Loader>
void AddInputsOfRows(size_t num_rows, TileView<const float> x,
                     TileView<const typename Loader::Element> w, size_t num_inputs,
                     TileView<float> sums, FetchPlan& fetch) {
  for (size_t tiles = NumFmaTiles(num_rows); tiles > 0; --tiles) {
    const size_t height = num_rows / tiles;
    AddInputsOfTile<Loader>(height, x, w, num_inputs, sums, fetch.Next(num_inputs));
    num_rows -= height;
    x.data += height * x.stride;
    sums.data += height * sums.stride;
  }
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
