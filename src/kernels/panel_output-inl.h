// The last step of a product: sums of a panel become columns of y.
#include <hwy/highway.h>

#include "kernels/panels.h"

#if defined(SPA_KERNELS_PANEL_OUTPUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPA_KERNELS_PANEL_OUTPUT_INL_H_
#undef SPA_KERNELS_PANEL_OUTPUT_INL_H_
#else
#define SPA_KERNELS_PANEL_OUTPUT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y[first_row + i, 16 * panel + c] = sums[i][c] (+ bias)
inline void WritePanel(const float* HWY_RESTRICT sums, size_t panel, const float* bias,
                       const MatMulPart& part, MatView<float> y) {
  const size_t first_col = panel * kPanelWidth;
  const size_t num_cols = HWY_MIN(kPanelWidth, y.cols - first_col);
  HWY_ALIGN float added[kPanelWidth] = {};
  if (bias != nullptr) {
    for (size_t c = 0; c < num_cols; ++c) added[c] = bias[first_col + c];
  }
  const hn::CappedTag<float, kPanelWidth> df;
  for (size_t i = 0; i < part.num_rows; ++i, sums += kPanelWidth) {
    float* to = y.Row(part.first_row + i) + first_col;
    if (num_cols == kPanelWidth) {
      for (size_t c = 0; c < kPanelWidth; c += hn::Lanes(df)) {
        hn::StoreU(hn::Add(hn::Load(df, sums + c), hn::Load(df, added + c)), df, to + c);
      }
    } else {
      for (size_t c = 0; c < num_cols; ++c) to[c] = sums[c] + added[c];
    }
  }
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
