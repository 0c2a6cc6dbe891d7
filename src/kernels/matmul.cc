#include "kernels/matmul.h"

#include <algorithm>
#include <numeric>
#include <vector>

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
  const auto num_rows = static_cast<uint32_t>(x.rows);
  SetExperts(x, {&num_rows, 1});
}

void Activations::SetExperts(MatView<const float> x, std::span<const uint32_t> rows_of_expert) {
  x_ = x;
  rows_of_expert_.assign(rows_of_expert.begin(), rows_of_expert.end());
  SPA_CHECK(std::accumulate(rows_of_expert_.begin(), rows_of_expert_.end(), size_t{0}) == x.rows);
  int8_span_ = 0;
}

const Activations::Int8Rows& Activations::int8_rows(size_t scale_span, ThreadPool& pool) {
  if (int8_span_ != scale_span) QuantizeRows(x_, rows_of_expert_, scale_span, *int8_, pool);
  int8_span_ = scale_span;
  return *int8_;
}

namespace {

size_t DivideRoundUp(size_t a, size_t b) { return (a + b - 1) / b; }

// A part is at most 192 rows by 8 panels. A block of 192 rows (1024 inputs of int8, 256 of f32)
// takes 300 KB and stays in L2 while blocks of the 8 panels pass by; more rows would leave it, and
// with fewer, unpacking weights takes a larger share.
constexpr size_t kMaxPartRows = 192;
constexpr size_t kMaxPartPanels = 8;
// Parts start at a whole tile of any kernel: of 4, 8 or 12 rows.
constexpr size_t kRowStep = 24;
// Products smaller than this take a few microseconds: waking the other threads costs more than it
// saves.
constexpr size_t kSmallProduct = 256 * 1024;

// How one product is cut into parts. Row parts are the inner index: tasks that follow each other
// share panels, so that weights come from memory once.
struct Split {
  size_t first_row, num_rows;
  size_t first_tile;
  size_t row_parts;
  size_t rows_per_part;
  size_t num_panels;
  size_t panels_per_part = 1;
  size_t first_task = 0;

  size_t NumTasks() const { return row_parts * DivideRoundUp(num_panels, panels_per_part); }
  MatMulPart Part(size_t task) const {
    const size_t row = task % row_parts * rows_per_part;
    const size_t panel = task / row_parts * panels_per_part;
    return {.first_row = first_row + row,
            .num_rows = std::min(rows_per_part, num_rows - row),
            .first_tile = first_tile + row / kTileRows,
            .first_panel = panel,
            .num_panels = std::min(panels_per_part, num_panels - panel)};
  }
};

// The matrix of expert e is matrices[e].
void Multiply(Activations& x, std::span<const PackedMatrix> matrices, const float* bias,
              MatView<float> y, ThreadPool& pool) {
  const std::span<const uint32_t> rows_of_expert = x.rows_of_expert();
  SPA_CHECK(rows_of_expert.size() == matrices.size() && y.rows == x.x().rows);
  const size_t num_rows = x.x().rows;
  if (num_rows == 0 || y.cols == 0) return;

  std::vector<Split> splits;
  const PackedMatrix::Panels& any = matrices[0].panels();
  size_t all_parts = 0;  // of one panel each
  for (size_t e = 0, row = 0, tile = 0; e < matrices.size(); ++e) {
    const PackedMatrix::Panels& panels = matrices[e].panels();
    SPA_CHECK(x.x().cols == panels.cols && y.cols == panels.rows && panels.dtype == any.dtype);
    const size_t rows = rows_of_expert[e];
    const size_t row_parts = std::max<size_t>(1, DivideRoundUp(rows, kMaxPartRows));
    splits.push_back({.first_row = row,
                      .num_rows = rows,
                      .first_tile = tile,
                      .row_parts = row_parts,
                      .rows_per_part = DivideRoundUp(rows, row_parts * kRowStep) * kRowStep,
                      .num_panels = rows == 0 ? 0 : panels.NumPanels()});
    all_parts += splits.back().row_parts * splits.back().num_panels;
    row += rows;
    tile += DivideRoundUp(rows, kTileRows);
  }
  const bool is_small = num_rows * any.rows * any.cols < kSmallProduct;
  // Otherwise as large as possible with several parts per thread.
  const size_t panels_per_part =
      is_small ? any.NumPanels()
               : std::clamp<size_t>(all_parts / (8 * pool.num_threads()), 1, kMaxPartPanels);
  size_t num_tasks = 0;
  for (Split& split : splits) {
    split.panels_per_part = panels_per_part;
    split.first_task = num_tasks;
    num_tasks += split.NumTasks();
  }

  const bool is_float = any.scale_form == ScaleForm::kNone;
  // Activations share a scale over the inputs of one weight block, as in llama.cpp: 32, or 256 for
  // the K types. Results then agree with llama.cpp's up to rounding.
  const Activations::Int8Rows* int8_rows =
      is_float ? nullptr : &x.int8_rows(Info(any.dtype).block_size, pool);
  pool.ParallelFor(num_tasks, [&](size_t task) {
    // The last product that begins at or before the task; products without rows have no tasks.
    const auto after =
        std::upper_bound(splits.begin(), splits.end(), task,
                         [](size_t t, const Split& split) { return t < split.first_task; });
    const Split& split = *(after - 1);
    const auto e = static_cast<size_t>(after - 1 - splits.begin());
    const MatMulPart part = split.Part(task - split.first_task);
    if (is_float) {
      MatMulFloat(x.x(), matrices[e].panels(), bias, part, y);
    } else {
      MatMulInt(*int8_rows, matrices[e].panels(), bias, part, y);
    }
  });
}

}  // namespace

void MatMul(Activations& x, const PackedMatrix& w, MatView<float> y, ThreadPool& pool,
            const float* bias) {
  Multiply(x, {&w, 1}, bias, y, pool);
}

void MatMulExperts(Activations& x, std::span<const PackedMatrix> experts, MatView<float> y,
                   ThreadPool& pool) {
  Multiply(x, experts, nullptr, y, pool);
}

}  // namespace spa
