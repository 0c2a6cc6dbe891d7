// Every kernel as short scalar loops: the definition for readers, the oracle for tests. Sums are
// taken in float64; the fast kernels agree with them up to float32 rounding, on every target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/matrix.h"
#include "kernels/attention.h"
#include "kernels/logit_stats.h"
#include "kernels/matmul.h"
#include "kernels/pointwise.h"

namespace spa::reference {

// y[i, o] = sum_c x[i, c] w[o, c] (+ bias[o]).   x: [m, w.cols], y: [m, w.rows]
void MatMul(MatView<const float> x, const MatrixSource& w, const float* bias, MatView<float> y);

// The value that products with quantised weights see in place of x: in each span of inputs the
// multiple of scale = max|x| / 127 (a half if the span is 32) nearest to x.   rounded: [x.rows,
// x.cols]
void RoundActivations(MatView<const float> x, size_t scale_span, MatView<float> rounded);

// What is read of values that were stored in bytes: an integer in [-127, 127] times a scale for
// each row and head. A head with a NaN is NaN.
void RoundValues(MatView<const float> v, size_t head_dim, MatView<float> rounded);

// Softmax attention of every query head over the keys it sees. job.kv is not read; in its place
// k, v: [keys, kv_heads*head_dim].
void Attend(const AttentionJob& job, MatView<const float> k, MatView<const float> v,
            size_t num_heads, size_t head_dim);

void RmsNorm(MatView<const float> x, std::span<const uint32_t> rows, const float* gain,
             float epsilon, MatView<float> y);
void Rope(MatView<float> x, std::span<const uint32_t> positions, size_t head_dim,
          const RopeTable& table);
void RmsNormHeads(MatView<float> rows, size_t head_dim, const float* gain, float epsilon);
void SwiGlu(MatView<float> gate, MatView<const float> up);
void GeGlu(MatView<float> gate, MatView<const float> up);

void CosineRows(MatView<const float> a, MatView<const float> b, std::span<const uint32_t> rows,
                std::span<float> out);
std::vector<uint32_t> SmallestK(std::span<const float> values, size_t k);

LogitStats ComputeLogitStats(std::span<const float> logits);

}  // namespace spa::reference
