// The element-wise parts of a step. Every row is computed independently, in a fixed order.
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

// The same for every head of every row separately, in place. rows: [rows, heads*head_dim], gain:
// [head_dim]; null: no gain
void RmsNormHeads(MatView<float> rows, size_t head_dim, const float* gain, float epsilon,
                  ThreadPool& pool);

// Cosine and sine of every (position, frequency): computed in double, rounded once.
class RopeTable {
 public:
  RopeTable() = default;
  // Pair j of rope_dim / 2 has the frequency theta^(-2j / rope_dim).
  RopeTable(size_t num_positions, size_t rope_dim, double theta);
  // One frequency per pair; a pair of frequency 0 is not rotated.
  RopeTable(size_t num_positions, std::span<const double> frequencies);
  size_t num_positions() const { return cos_.rows(); }
  size_t rope_dim() const { return 2 * cos_.cols(); }  // dimensions of a head that are rotated
  const float* Cos(size_t position) const { return cos_.Row(position); }  // [rope_dim / 2]
  const float* Sin(size_t position) const { return sin_.Row(position); }  // [rope_dim / 2]

 private:
  Mat<float> cos_, sin_;
};

// Rotates the pairs (j, j + rope_dim/2) of every head of row i by the angle of positions[i]; the
// dimensions of a head from rope_dim on stay as they are.
void Rope(MatView<float> x, std::span<const uint32_t> positions, size_t head_dim,
          const RopeTable& table, ThreadPool& pool);

// gate[i] = silu(gate[i]) * up[i]
void SwiGlu(MatView<float> gate, MatView<const float> up, ThreadPool& pool);

// gate[i] = gelu(gate[i]) * up[i], with the tanh form of gelu:
// gelu(x) = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
void GeGlu(MatView<float> gate, MatView<const float> up, ThreadPool& pool);

}  // namespace spa
