// Products of f32, f16 and bf16 weights with f32 activations: fused multiply-adds into f32 sums,
// input after input.
#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_float.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "kernels/panel_output-inl.h"
#include "kernels/panels.h"

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kPanelWidth>;
using VF = hn::Vec<DF>;
constexpr size_t kLanes = hn::MaxLanes(DF());
constexpr size_t kVecs = kPanelWidth / kLanes;
// With AVX2 a tile of 6 x 16 takes 12 sums, 2 weights and 1 input of 16 registers.
constexpr size_t kMaxRows = 6;
// Inputs of a panel that stay in L1 while the rows pass by: 16 KB of f32.
constexpr size_t kInputsPerBlock = 256;

struct LoadF32 {
  using Element = float;
  static HWY_INLINE void Weights(const float* w, VF (&to)[kVecs]) {
    for (size_t v = 0; v < kVecs; ++v) to[v] = hn::Load(DF(), w + v * kLanes);
  }
};

struct LoadF16 {
  using Element = hwy::float16_t;
  static HWY_INLINE void Weights(const hwy::float16_t* w, VF (&to)[kVecs]) {
    constexpr hn::Rebind<hwy::float16_t, DF> d16;
    for (size_t v = 0; v < kVecs; ++v) {
      to[v] = hn::PromoteTo(DF(), hn::Load(d16, w + v * kLanes));
    }
  }
};

struct LoadBF16 {
  using Element = hwy::bfloat16_t;
  static HWY_INLINE void Weights(const hwy::bfloat16_t* w, VF (&to)[kVecs]) {
    // Word c holds channels c and c + 8: a shift and a mask give two vectors in order.
    constexpr hn::CappedTag<uint32_t, kPanelWidth / 2> dw;
    constexpr hn::Repartition<float, decltype(dw)> df;
    const uint32_t* words = reinterpret_cast<const uint32_t*>(w);
    const auto high_half = hn::Set(dw, 0xffff0000u);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
    const auto pair = hn::Load(dw, words);
    to[0] = hn::Combine(DF(), hn::BitCast(df, hn::And(pair, high_half)),
                        hn::BitCast(df, hn::ShiftLeft<16>(pair)));
#else
    for (size_t v = 0; v < kVecs / 2; ++v) {
      const auto pair = hn::Load(dw, words + v * kLanes);
      to[v] = hn::BitCast(df, hn::ShiftLeft<16>(pair));
      to[kVecs / 2 + v] = hn::BitCast(df, hn::And(pair, high_half));
    }
#endif
  }
};

// sums[r][16] += x[r][0..num_inputs) * w
template <class Loader, size_t kRows>
HWY_NOINLINE void AddInputs(const float* HWY_RESTRICT x, size_t stride,
                            const typename Loader::Element* HWY_RESTRICT w, size_t num_inputs,
                            float* HWY_RESTRICT sums) {
  constexpr DF df;
  VF acc[kRows][kVecs];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      acc[r][v] = hn::Load(df, sums + r * kPanelWidth + v * kLanes);
    }
  }
  for (size_t i = 0; i < num_inputs; ++i, w += kPanelWidth) {
    VF weights[kVecs];
    Loader::Weights(w, weights);
    for (size_t r = 0; r < kRows; ++r) {
      const VF input = hn::Set(df, x[r * stride + i]);
      for (size_t v = 0; v < kVecs; ++v) acc[r][v] = hn::MulAdd(input, weights[v], acc[r][v]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVecs; ++v) {
      hn::Store(acc[r][v], df, sums + r * kPanelWidth + v * kLanes);
    }
  }
}

// Picks the kernel for num_rows <= kRows.
template <class Loader, size_t kRows>
void AddInputsOfRows(size_t num_rows, const float* x, size_t stride,
                     const typename Loader::Element* w, size_t num_inputs, float* sums) {
  if constexpr (kRows > 1) {
    if (num_rows < kRows) {
      return AddInputsOfRows<Loader, kRows - 1>(num_rows, x, stride, w, num_inputs, sums);
    }
  }
  AddInputs<Loader, kRows>(x, stride, w, num_inputs, sums);
}

template <class Loader>
void MultiplyPart(MatView<const float> x, const PackedMatrix::Panels& w, const float* bias,
                  const MatMulPart& part, MatView<float> y) {
  using Element = typename Loader::Element;
  thread_local Mat<float> scratch;
  scratch.Resize(part.num_rows, kPanelWidth);
  float* const sums = scratch.data();
  for (size_t panel = part.first_panel; panel < part.first_panel + part.num_panels; ++panel) {
    std::memset(sums, 0, part.num_rows * kPanelWidth * sizeof(float));
    const Element* weights = reinterpret_cast<const Element*>(w.Values(panel));
    for (size_t first = 0; first < w.cols; first += kInputsPerBlock) {
      const size_t count = HWY_MIN(kInputsPerBlock, w.cols - first);
      for (size_t i = 0; i < part.num_rows; i += kMaxRows) {
        AddInputsOfRows<Loader, kMaxRows>(
            HWY_MIN(kMaxRows, part.num_rows - i), x.Row(part.first_row + i) + first, x.stride,
            weights + first * kPanelWidth, count, sums + i * kPanelWidth);
      }
    }
    WritePanel(sums, panel, bias, part, y);
  }
}

void MultiplyFloat(MatView<const float> x, const PackedMatrix::Panels& w, const float* bias,
                   const MatMulPart& part, MatView<float> y) {
  switch (w.form) {
    case PanelForm::kF32: return MultiplyPart<LoadF32>(x, w, bias, part, y);
    case PanelForm::kF16: return MultiplyPart<LoadF16>(x, w, bias, part, y);
    case PanelForm::kBF16: return MultiplyPart<LoadBF16>(x, w, bias, part, y);
    default: HWY_ABORT("not a form of floats");
  }
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(MultiplyFloat);

void MatMulFloat(MatView<const float> x, const PackedMatrix::Panels& w, const float* bias,
                 const MatMulPart& part, MatView<float> y) {
  HWY_DYNAMIC_DISPATCH(MultiplyFloat)(x, w, bias, part, y);
}

}  // namespace spa
#endif  // HWY_ONCE
