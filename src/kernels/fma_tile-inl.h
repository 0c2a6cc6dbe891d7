// The float micro-kernel of products and of attention: a few rows by 16 or 32 columns of fused
// multiply-adds, with weights stored as f32, f16, bf16 or bytes.
#include <hwy/highway.h>

#include "kernels/for_each-inl.h"
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

// With AVX2 a tile of 6 x 16 takes 12 sums, 2 weights and 1 input of 16 registers. With AVX-512 one
// of 12 x 32 takes 24 sums, 2 weights and 1 input of 32: 14 loads for 24 multiply-adds. With one
// panel there would be as many loads as multiply-adds.
constexpr size_t kFmaRows = kTileVecs == 1 ? 12 : 6;
constexpr size_t kFmaPanels = kTileVecs == 1 ? 2 : 1;
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
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    // One instruction instead: half i of the words becomes the upper half of its column.
    alignas(64) static constexpr uint16_t kHalves[2 * kPanelWidth] = {
        0, 0, 0, 2, 0, 4, 0, 6, 0, 8, 0, 10, 0, 12, 0, 14,
        0, 1, 0, 3, 0, 5, 0, 7, 0, 9, 0, 11, 0, 13, 0, 15};
    const __m256i words = _mm256_load_si256(reinterpret_cast<const __m256i*>(w));
    to[0].raw = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(
        0xaaaaaaaau, _mm512_load_si512(kHalves), _mm512_castsi256_si512(words)));
#else
    constexpr hn::CappedTag<uint32_t, kPanelWidth / 2> dw;
    constexpr hn::Repartition<float, decltype(dw)> df;
    const uint32_t* words = reinterpret_cast<const uint32_t*>(w);
    const auto high_half = hn::Set(dw, 0xffff0000u);
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

// Rows of inputs: row r starts at data + r * stride.
struct TileInputs {
  const float* data;
  size_t stride;
};

// Panels of weights, [inputs][16] each: panel p starts at data + p * stride.
template <typename Element>
struct TilePanels {
  const Element* data;
  size_t stride;
  size_t count;
};

// 16 sums of row r and panel p: from data + r * row_stride + p * panel_stride on.
struct TileSums {
  float* data;
  size_t row_stride;
  size_t panel_stride;
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
  // num_inputs: of all the products together. Pieces of `bytes`, `stride` bytes apart.
  FetchPlan(const std::byte* first, size_t bytes, size_t num_inputs, size_t stride = 0,
            size_t num_pieces = 1)
      : next_(first),
        piece_lines_(bytes / kLineBytes),
        lines_left_(piece_lines_),
        stride_(stride),
        pieces_left_(num_pieces - 1),
        lines_per_step_((piece_lines_ * num_pieces * kFetchInputs + num_inputs - 1) / num_inputs) {}

  // The share of a product with this many inputs.
  Fetch Next(size_t num_inputs) {
    if (lines_left_ == 0 && pieces_left_ > 0) {
      --pieces_left_;
      next_ += stride_ - piece_lines_ * kLineBytes;
      lines_left_ = piece_lines_;
    }
    const Fetch fetch{next_, lines_left_ > 0 ? lines_per_step_ : 0};
    const size_t lines = HWY_MIN(lines_left_, fetch.lines * (num_inputs / kFetchInputs));
    lines_left_ -= lines;
    next_ += lines * kLineBytes;
    return fetch;
  }

 private:
  const std::byte* next_ = nullptr;
  size_t piece_lines_ = 0;
  size_t lines_left_ = 0;
  size_t stride_ = 0;
  size_t pieces_left_ = 0;
  size_t lines_per_step_ = 0;
};

// sums[r][p][0..16) += sum over i of x[r][i] w[p][i][0..16), i ascending
template <class Loader, size_t kRows, size_t kPanels>
HWY_NOINLINE HWY_FLATTEN void AddInputs(TileInputs x, TilePanels<typename Loader::Element> w,
                                        size_t num_inputs, TileSums sums, Fetch fetch) {
  constexpr DTile df;
  constexpr size_t kRowVecs = kPanels * kTileVecs;
  VTile acc[kRows * kRowVecs];
  const auto sums_of = [&](size_t k) HWY_ATTR {
    const size_t panel = k % kRowVecs / kTileVecs;
    return sums.data + k / kRowVecs * sums.row_stride + panel * sums.panel_stride +
           k % kTileVecs * kTileLanes;
  };
  ForEach<kRows * kRowVecs>([&](size_t k) HWY_ATTR { acc[k] = hn::Load(df, sums_of(k)); });
  const float* HWY_RESTRICT inputs = x.data;
  const typename Loader::Element* HWY_RESTRICT weights = w.data;
  const auto add = [&](size_t i) HWY_ATTR {
    VTile weight[kPanels][kTileVecs];
    for (size_t p = 0; p < kPanels; ++p) Loader::Load(weights + p * w.stride, weight[p]);
    ForEach<kRows>([&](size_t r) HWY_ATTR {
      const VTile input = hn::Set(df, inputs[r * x.stride + i]);
      ForEach<kRowVecs>([&](size_t k) HWY_ATTR {
        VTile& sum = acc[r * kRowVecs + k];
        sum = hn::MulAdd(input, weight[k / kTileVecs][k % kTileVecs], sum);
      });
    });
    weights += kPanelWidth;
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
  ForEach<kRows * kRowVecs>([&](size_t k) HWY_ATTR { hn::Store(acc[k], df, sums_of(k)); });
}

// The same for any num_rows <= kRows.
template <class Loader, size_t kPanels, size_t kRows = kFmaRows>
void AddInputsOfTile(size_t num_rows, TileInputs x, TilePanels<typename Loader::Element> w,
                     size_t num_inputs, TileSums sums, Fetch fetch) {
  if constexpr (kRows > 1) {
    if (num_rows < kRows) {
      return AddInputsOfTile<Loader, kPanels, kRows - 1>(num_rows, x, w, num_inputs, sums, fetch);
    }
  }
  AddInputs<Loader, kRows, kPanels>(x, w, num_inputs, sums, fetch);
}

constexpr size_t CeilDiv(size_t a, size_t b) { return (a + b - 1) / b; }

// So many tiles does AddInputsOfRows take.
constexpr size_t NumFmaTiles(size_t num_rows, size_t num_panels) {
  return CeilDiv(num_rows, kFmaRows) * CeilDiv(num_panels, kFmaPanels);
}

// The same for any number of rows and panels, in tiles of nearly equal height: one or two leftover
// rows would take as long as four.
template <class Loader>
void AddInputsOfRows(size_t num_rows, TileInputs x, TilePanels<typename Loader::Element> w,
                     size_t num_inputs, TileSums sums, FetchPlan& fetch) {
  for (size_t panel = 0, panels, count = w.count; panel < count; panel += panels) {
    panels = HWY_MIN(kFmaPanels, count - panel);
    TileInputs rows = x;
    TileSums to = sums;
    size_t left = num_rows;
    for (size_t tiles = CeilDiv(num_rows, kFmaRows); tiles > 0; --tiles) {
      const size_t height = left / tiles;
      const Fetch next = fetch.Next(num_inputs);
      if (panels == kFmaPanels) {
        AddInputsOfTile<Loader, kFmaPanels>(height, rows, w, num_inputs, to, next);
      } else {
        AddInputsOfTile<Loader, 1>(height, rows, w, num_inputs, to, next);
      }
      left -= height;
      rows.data += height * x.stride;
      to.data += height * sums.row_stride;
    }
    w.data += panels * w.stride;
    sums.data += panels * sums.panel_stride;
  }
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
