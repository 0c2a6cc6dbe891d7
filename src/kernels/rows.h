// Gathering, adding, comparing and choosing rows: the parts of a sparse update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/matrix.h"
#include "base/thread_pool.h"

namespace spa {

// dst[i] = src[rows[i]]
void GatherRows(MatView<const float> src, std::span<const uint32_t> rows, MatView<float> dst,
                ThreadPool& pool);
// dst[rows[i]] = src[i]
void ScatterRows(MatView<const float> src, std::span<const uint32_t> rows, MatView<float> dst,
                 ThreadPool& pool);
// dst += src, all rows
void AddRows(MatView<const float> src, MatView<float> dst, ThreadPool& pool);

// Accumulated in float64; 0 if either is the zero vector.
float Cosine(const float* a, const float* b, size_t count);
// out[i] = cosine of a[i] and b[rows[i]]
void CosineRows(MatView<const float> a, MatView<const float> b, std::span<const uint32_t> rows,
                std::span<float> out, ThreadPool& pool);

// The indices of the k smallest values, in ascending index order. Ties: the lower index wins.
// NaN counts as the smallest.
std::vector<uint32_t> SmallestK(std::span<const float> values, size_t k);

}  // namespace spa
