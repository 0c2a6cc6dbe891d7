// The sums of one part of a product while its inputs are added, block by block.
#include <hwy/highway.h>

#include <cstring>

#include "kernels/panels.h"

#if defined(SPA_KERNELS_PART_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPA_KERNELS_PART_SUMS_INL_H_
#undef SPA_KERNELS_PART_SUMS_INL_H_
#else
#define SPA_KERNELS_PART_SUMS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One at a time per thread: the memory is the thread's own.
class PartSums {
 public:
  explicit PartSums(const MatMulPart& part) : part_(part) {
    thread_local Mat<float> scratch;
    scratch.Resize(part.num_panels * part.num_rows, kPanelWidth);
    sums_ = scratch.data();
    std::memset(sums_, 0, part.num_panels * part.num_rows * kPanelWidth * sizeof(float));
  }

  // The 16 sums of a row of the part, followed by those of the next row.
  float* Row(size_t panel, size_t row) const {
    return sums_ + (panel * part_.num_rows + row) * kPanelWidth;
  }

  void WriteTo(MatView<float> y, const float* bias) const {
    for (size_t panel = 0; panel < part_.num_panels; ++panel) WritePanel(panel, y, bias);
  }

 private:
  void WritePanel(size_t panel, MatView<float> y, const float* bias) const {
    const size_t first_col = (part_.first_panel + panel) * kPanelWidth;
    const size_t num_cols = HWY_MIN(kPanelWidth, y.cols - first_col);
    HWY_ALIGN float added[kPanelWidth] = {};
    if (bias != nullptr) {
      for (size_t c = 0; c < num_cols; ++c) added[c] = bias[first_col + c];
    }
    const hn::CappedTag<float, kPanelWidth> df;
    for (size_t i = 0; i < part_.num_rows; ++i) {
      const float* sums = Row(panel, i);
      float* to = y.Row(part_.first_row + i) + first_col;
      if (num_cols == kPanelWidth) {
        for (size_t c = 0; c < kPanelWidth; c += hn::Lanes(df)) {
          hn::StoreU(hn::Add(hn::Load(df, sums + c), hn::Load(df, added + c)), df, to + c);
        }
      } else {
        for (size_t c = 0; c < num_cols; ++c) to[c] = sums[c] + added[c];
      }
    }
  }

  MatMulPart part_;
  float* sums_;
};

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
