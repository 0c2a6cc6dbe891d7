// Rows that a layer keeps between steps (updates or outputs, queries, identifiers), from
// `first_row` on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/matrix.h"
#include "base/thread_pool.h"
#include "kernels/kv_type.h"
#include "kernels/parallel_rows.h"
#include "kernels/rows.h"
#include "kernels/state_memory.h"

namespace spa {

class KeptRows {
 public:
  KeptRows(size_t first_row, size_t num_rows, size_t cols, KeptType type)
      : type_(type),
        first_row_(std::min(first_row, num_rows)),
        cols_(cols),
        row_bytes_(cols * ElementBytes(type)),
        memory_(TakeStateMemory((num_rows - first_row_) * row_bytes_)) {}
  KeptRows(KeptRows&&) noexcept = default;
  KeptRows& operator=(KeptRows&&) = delete;
  ~KeptRows() { LeaveStateMemory(std::move(memory_)); }

  static size_t BytesFor(size_t num_rows, size_t cols, KeptType type) {
    return StateBytes(num_rows * cols * ElementBytes(type));
  }
  size_t bytes() const { return memory_.bytes(); }
  size_t first_row() const { return first_row_; }

  void Store(uint32_t row, const float* src) {
    if (row >= first_row_) EncodeKept(type_, src, cols_, Row(row));
  }
  // Keeps src[i] as row rows[i].
  void Store(std::span<const uint32_t> rows, MatView<const float> src, ThreadPool& pool) {
    SPA_CHECK(src.rows == rows.size() && src.cols == cols_);
    ParallelRows(pool, rows.size(), cols_, [&](size_t i) { Store(rows[i], src.Row(i)); });
  }
  void Load(uint32_t row, float* dst) const {
    SPA_CHECK(row >= first_row_);
    DecodeKept(type_, Row(row), cols_, dst);
  }
  // x[rows[i]] += row rows[i]
  void AddTo(std::span<const uint32_t> rows, MatView<float> x, ThreadPool& pool) {
    SPA_CHECK(rows.empty() || rows[0] >= first_row_);
    ParallelRows(pool, rows.size(), cols_,
                 [&](size_t i) { AddKept(type_, Row(rows[i]), cols_, x.Row(rows[i])); });
  }
  // x[rows[i]] = row rows[i]
  void CopyTo(std::span<const uint32_t> rows, MatView<float> x, ThreadPool& pool) {
    SPA_CHECK(rows.empty() || rows[0] >= first_row_);
    ParallelRows(pool, rows.size(), cols_, [&](size_t i) { Load(rows[i], x.Row(rows[i])); });
  }
  // out[i] = cosine of a[i] and row rows[i]; -1 if that is not kept
  void Cosines(std::span<const uint32_t> rows, MatView<const float> a, std::span<float> out,
               ThreadPool& pool) const {
    SPA_CHECK(a.rows == rows.size() && out.size() == rows.size() && a.cols == cols_);
    ParallelRows(pool, rows.size(), cols_, [&](size_t i) {
      out[i] = -1.0f;
      if (rows[i] < first_row_) return;
      thread_local std::vector<float> row;
      row.resize(cols_);
      Load(rows[i], row.data());
      out[i] = Cosine(a.Row(i), row.data(), cols_);
    });
  }
  // Copies the rows before `end` that both keep.
  void Adopt(const KeptRows& other, size_t end) {
    SPA_CHECK(type_ == other.type_ && cols_ == other.cols_);
    for (size_t row = std::max(first_row_, other.first_row_); row < end; ++row) {
      std::copy_n(other.Row(row), row_bytes_, Row(row));
    }
  }

 private:
  const std::byte* Row(size_t row) const {
    return memory_.data() + (row - first_row_) * row_bytes_;
  }
  std::byte* Row(size_t row) { return memory_.data() + (row - first_row_) * row_bytes_; }

  KeptType type_;
  size_t first_row_, cols_, row_bytes_;
  Mat<std::byte> memory_;  // [rows, cols]
};

}  // namespace spa
