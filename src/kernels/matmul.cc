#include "kernels/matmul.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/pack.h"
#include "kernels/panels.h"

namespace spa {

PackedMatrix::PackedMatrix() : panels_(std::make_unique<Panels>()) {}
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;
PackedMatrix& PackedMatrix::operator=(PackedMatrix&&) noexcept = default;
PackedMatrix::~PackedMatrix() = default;

PackedMatrix::PackedMatrix(const MatrixSource& source, ThreadPool& pool) : PackedMatrix() {
  LayOutPanels(source, *panels_);
  pool.ParallelFor(panels_->NumPanels(), [&](size_t panel) { PackPanel(source, panel, *panels_); });
}

size_t PackedMatrix::rows() const { return panels_->rows; }
size_t PackedMatrix::cols() const { return panels_->cols; }
size_t PackedMatrix::bytes() const { return panels_->data.bytes(); }

Activations::Activations() : int8_(std::make_unique<Int8Rows>()) {}
Activations::~Activations() = default;
Activations::Activations(Activations&&) noexcept = default;
Activations& Activations::operator=(Activations&&) noexcept = default;

void Activations::Set(MatView<const float> x) {
  x_ = x;
  int8_span_ = 0;
}

const Activations::Int8Rows& Activations::int8_rows(size_t scale_span, ThreadPool& pool) {
  if (int8_span_ != scale_span) QuantizeRows(x_, scale_span, *int8_, pool);
  int8_span_ = scale_span;
  return *int8_;
}

namespace {

size_t DivideRoundUp(size_t a, size_t b) { return (a + b - 1) / b; }

// A part is at most 96 rows by 8 panels. A block of 96 rows (1024 inputs of int8, 256 of f32) takes
// 150 KB and stays in L2 while blocks of the 8 panels pass by.
constexpr size_t kMaxPartRows = 96;
constexpr size_t kMaxPartPanels = 8;
// Parts start at a whole tile of either kernel.
constexpr size_t kRowStep = 12;
// Multiplications below which waking the other threads costs more than it saves: a few
// microseconds.
constexpr size_t kSmallProduct = 256 * 1024;

}  // namespace

void MatMul(Activations& x, const PackedMatrix& w, MatView<float> y, ThreadPool& pool,
            const float* bias) {
  const PackedMatrix::Panels& panels = w.panels();
  const size_t num_rows = x.x().rows;
  SPA_CHECK(x.x().cols == panels.cols && y.rows == num_rows && y.cols == panels.rows);
  if (num_rows == 0 || panels.rows == 0) return;

  const size_t row_parts = DivideRoundUp(num_rows, kMaxPartRows);
  const size_t rows_per_part = DivideRoundUp(num_rows, row_parts * kRowStep) * kRowStep;
  const size_t num_panels = panels.NumPanels();
  const bool is_small = num_rows * panels.rows * panels.cols < kSmallProduct;
  // Otherwise parts are as large as leaves every thread with several.
  const size_t panels_per_part =
      is_small ? num_panels
               : std::clamp<size_t>(num_panels * row_parts / (8 * pool.num_threads()), 1,
                                    kMaxPartPanels);
  const bool is_float = panels.scale_form == ScaleForm::kNone;
  // Activations share a scale over the inputs of one weight block, as in llama.cpp: 32, or 256 for
  // the K types. The results then agree with its own to rounding.
  const Activations::Int8Rows* int8_rows =
      is_float ? nullptr : &x.int8_rows(Info(panels.dtype).block_size, pool);

  // Row parts are the inner index: tasks that follow each other share panels, so that weights come
  // from memory once.
  pool.ParallelFor(row_parts * DivideRoundUp(num_panels, panels_per_part), [&](size_t task) {
    MatMulPart part;
    part.first_row = task % row_parts * rows_per_part;
    part.num_rows = std::min(rows_per_part, num_rows - part.first_row);
    part.first_panel = task / row_parts * panels_per_part;
    part.num_panels = std::min(panels_per_part, num_panels - part.first_panel);
    if (is_float) {
      MatMulFloat(x.x(), panels, bias, part, y);
    } else {
      MatMulInt(*int8_rows, panels, bias, part, y);
    }
  });
}

}  // namespace spa
