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

// All panels are processed before the next inputs. While one block is multiplied, the next is
// prefetched into L2: with few rows, waiting for it would take as long as the products.
template <class Loader>
void MultiplyFloatPart(MatView<const float> x, const PackedMatrix::Panels& w, const float* bias,
                       const MatMulPart& part, MatView<float> y) {
  using Element = typename Loader::Element;
  PartSums sums(part);
  constexpr size_t kRowBytes = kPanelWidth * sizeof(Element);  // of one input
  const size_t panel_bytes = w.data.cols();
  const auto block = [&](size_t panel, size_t first) {
    return w.Values(part.first_panel + panel) + first * kRowBytes;
  };
  for (size_t first = 0; first < w.cols; first += kInputsPerBlock) {
    const size_t count = HWY_MIN(kInputsPerBlock, w.cols - first);
    for (size_t panel = 0, panels; panel < part.num_panels; panel += panels) {
      panels = HWY_MIN(kFmaPanels, part.num_panels - panel);
      const bool last = panel + panels == part.num_panels;
      const std::byte* next = last ? block(0, first + count) : block(panel + panels, first);
      const size_t next_bytes = last && first + count == w.cols ? 0 : count * kRowBytes;
      FetchPlan fetch(next, next_bytes, NumFmaTiles(part.num_rows, panels) * count, panel_bytes,
                      panels);
      AddInputsOfRows<Loader>(part.num_rows, {x.Row(part.first_row) + first, x.stride},
                              {reinterpret_cast<const Element*>(block(panel, first)),
                               panel_bytes / sizeof(Element), panels},
                              count, {sums.Row(panel, 0), kPanelWidth, part.num_rows * kPanelWidth},
                              fetch);
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
