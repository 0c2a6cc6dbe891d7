// The element-wise parts of a step. Every row is computed by itself, in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/matrix.h"
#include "base/thread_pool.h"

namespace spa {

// y[i] = x[rows[i]] / rms(x[rows[i]]) * gain.   y: [rows.size(), x.cols]
void RmsNorm(MatView<const float> x, std::span<const uint32_t> rows, const float* gain,
             float epsilon, MatView<float> y, ThreadPool& pool);

// Cosine and sine of every (position, frequency): computed in double, rounded once.
class RopeTable {
 public:
  RopeTable() = default;
  RopeTable(size_t num_positions, size_t head_dim, double theta);
  size_t num_positions() const { return cos_.rows(); }
  const float* Cos(size_t position) const { return cos_.Row(position); }  // [head_dim / 2]
  const float* Sin(size_t position) const { return sin_.Row(position); }  // [head_dim / 2]

 private:
  Mat<float> cos_, sin_;
};

// Rotates the pairs (j, j + head_dim/2) of every head of row i by the angle of positions[i].
void Rope(MatView<float> x, std::span<const uint32_t> positions, size_t head_dim,
          const RopeTable& table, ThreadPool& pool);

// gate[i] = silu(gate[i]) * up[i]
void SwiGlu(MatView<float> gate, MatView<const float> up, ThreadPool& pool);

}  // namespace spa
