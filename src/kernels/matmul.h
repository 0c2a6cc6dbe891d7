// y = x W^T for the model's weights: where a step spends most of its time.
//
// A weight matrix is packed once, at load time, into the form its kernel streams; packing keeps the
// stored values exactly. Each output element is accumulated over the inputs in one fixed order, so
// it does not depend on how many rows x has, which other rows those are, or on the thread count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/matrix.h"
#include "base/thread_pool.h"

namespace spa {

// A weight matrix as stored in a file. Row r of the matrix is stored row row_order[r]; an empty
// row_order means as stored.
struct MatrixSource {
  DType dtype = DType::kF32;
  size_t rows = 0;  // outputs
  size_t cols = 0;  // inputs
  const std::byte* data = nullptr;
  std::span<const uint32_t> row_order = {};

  const std::byte* Row(size_t row) const {
    return data + (row_order.empty() ? row : row_order[row]) * RowBytes(dtype, cols);
  }
};

class PackedMatrix {
 public:
  PackedMatrix();
  PackedMatrix(const MatrixSource& source, ThreadPool& pool);
  PackedMatrix(PackedMatrix&&) noexcept;
  PackedMatrix& operator=(PackedMatrix&&) noexcept;
  ~PackedMatrix();

  size_t rows() const;   // outputs
  size_t cols() const;   // inputs
  size_t bytes() const;  // memory held

  struct Panels;  // the packed form; private to kernels/
  const Panels& panels() const { return *panels_; }

 private:
  std::unique_ptr<Panels> panels_;
};

// The left operand: rows of activations, and their int8 form for quantised weights, made on first
// use and shared by all products of the same rows (q, k, v; gate, up). Buffers are reused across
// Set calls. Not thread-safe.
class Activations {
 public:
  Activations();
  ~Activations();
  Activations(Activations&&) noexcept;
  Activations& operator=(Activations&&) noexcept;

  // x must stay valid and unchanged until the last MatMul that uses it.
  void Set(MatView<const float> x);
  // The same for MatMulExperts. The rows lie expert after expert: rows_of_expert[e] of them are of
  // expert e, perhaps none.
  void SetExperts(MatView<const float> x, std::span<const uint32_t> rows_of_expert);
  MatView<const float> x() const { return x_; }
  // One if there are no experts.
  std::span<const uint32_t> rows_of_expert() const { return rows_of_expert_; }

  struct Int8Rows;  // private to kernels/
  // scale_span: how many inputs share a scale.
  const Int8Rows& int8_rows(size_t scale_span, ThreadPool& pool);

 private:
  MatView<const float> x_;
  std::vector<uint32_t> rows_of_expert_;
  size_t int8_span_ = 0;  // of the rows in int8_; 0: none are
  std::unique_ptr<Int8Rows> int8_;
};

// y[i, o] = sum_c x[i, c] W[o, c] (+ bias[o] if bias is not null).   y: [x.rows, w.rows]
void MatMul(Activations& x, const PackedMatrix& w, MatView<float> y, ThreadPool& pool,
            const float* bias = nullptr);

// The products of a mixture of experts, all at once: the rows of each expert by its matrix. Bit for
// bit what MatMul gives for each alone. The matrices have one type and shape.
// experts: [x.rows_of_expert().size()], y: [x.rows, experts[e].rows()]
void MatMulExperts(Activations& x, std::span<const PackedMatrix> experts, MatView<float> y,
                   ThreadPool& pool);

}  // namespace spa
