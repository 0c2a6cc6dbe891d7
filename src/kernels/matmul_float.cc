// Products of f32, f16 and bf16 weights with f32 activations, summed in f32 input after input.
#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_float.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/fma_tile-inl.h"
#include "kernels/panels.h"
#include "kernels/part_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {

// Inputs of a panel that stay in L1 while the rows pass by: 16 KB of f32.
constexpr size_t kInputsPerBlock = 256;

template <class Loader>
void MultiplyFloatPart(MatView<const float> x, const PackedMatrix::Panels& w, const float* bias,
                       const MatMulPart& part, MatView<float> y) {
  using Element = typename Loader::Element;
  PartSums sums(part);
  const auto weights_at = [&](size_t panel, size_t first) {
    return reinterpret_cast<const Element*>(w.Values(part.first_panel + panel)) +
           first * kPanelWidth;
  };
  const size_t num_tiles = (part.num_rows + kFmaRows - 1) / kFmaRows;
  for (size_t first = 0; first < w.cols; first += kInputsPerBlock) {
    const size_t count = HWY_MIN(kInputsPerBlock, w.cols - first);
    for (size_t panel = 0; panel < part.num_panels; ++panel) {
      // Between its tiles a block fetches the next one: 0.80 instead of 0.66 times the FMA peak
      // with 32 rows.
      const bool is_last_panel = panel + 1 == part.num_panels;
      const size_t next_first = is_last_panel ? first + kInputsPerBlock : first;
      const size_t next_count =
          next_first < w.cols ? HWY_MIN(kInputsPerBlock, w.cols - next_first) : 0;
      const Element* next = weights_at(is_last_panel ? 0 : panel + 1, next_first);
      for (size_t tile = 0; tile < num_tiles; ++tile) {
        for (size_t input = tile; input < next_count; input += num_tiles) {
          __builtin_prefetch(next + input * kPanelWidth, 0, 2);
        }
        const size_t i = tile * kFmaRows;
        AddInputsOfRows<Loader>(
            HWY_MIN(kFmaRows, part.num_rows - i), {x.Row(part.first_row + i) + first, x.stride},
            {weights_at(panel, first), kPanelWidth}, count, {sums.Row(panel, i), kPanelWidth});
      }
    }
  }
  sums.WriteTo(y, bias);
}

void MultiplyFloat(MatView<const float> x, const PackedMatrix::Panels& w, const float* bias,
                   const MatMulPart& part, MatView<float> y) {
  switch (w.form) {
    case PanelForm::kF32:
      return MultiplyFloatPart<LoadF32>(x, w, bias, part, y);
    case PanelForm::kF16:
      return MultiplyFloatPart<LoadF16>(x, w, bias, part, y);
    case PanelForm::kBF16:
      return MultiplyFloatPart<LoadBF16>(x, w, bias, part, y);
    default:
      HWY_ABORT("not a form of floats");
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
