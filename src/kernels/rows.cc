#include "kernels/rows.h"

#include <algorithm>
#include <cstring>

#include "kernels/reference.h"

namespace spa {

void GatherRows(MatView<const float> src, std::span<const uint32_t> rows, MatView<float> dst,
                ThreadPool& pool) {
  pool.ParallelFor(rows.size(), [&](size_t i) {
    std::memcpy(dst.Row(i), src.Row(rows[i]), src.cols * sizeof(float));
  });
}

void ScatterRows(MatView<const float> src, std::span<const uint32_t> rows, MatView<float> dst,
                 ThreadPool& pool) {
  pool.ParallelFor(rows.size(), [&](size_t i) {
    std::memcpy(dst.Row(rows[i]), src.Row(i), src.cols * sizeof(float));
  });
}

void AddRowsAt(MatView<const float> src, std::span<const uint32_t> rows, MatView<float> dst,
               ThreadPool& pool) {
  pool.ParallelFor(rows.size(), [&](size_t i) {
    for (size_t c = 0; c < src.cols; ++c) dst.Row(rows[i])[c] += src.Row(rows[i])[c];
  });
}

void AddRows(MatView<const float> src, MatView<float> dst, ThreadPool& pool) {
  pool.ParallelFor(src.rows, [&](size_t i) {
    for (size_t c = 0; c < src.cols; ++c) dst.Row(i)[c] += src.Row(i)[c];
  });
}

void CosineRows(MatView<const float> a, MatView<const float> b, std::span<const uint32_t> rows,
                std::span<float> out, ThreadPool&) {
  reference::CosineRows(a, b, rows, out);
}

std::vector<uint32_t> SmallestK(std::span<const float> values, size_t k) {
  return reference::SmallestK(values, k);
}

}  // namespace spa
