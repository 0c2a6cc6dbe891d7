// Row-major matrices: MatView looks, Mat owns. The start of a Mat is 64-byte aligned; its rows need
// not be.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/aligned_memory.h"

namespace spa {

// A view of `rows` rows of `cols` elements; consecutive rows start `stride` elements apart.
template <typename T>
struct MatView {
  T* data = nullptr;
  size_t rows = 0;
  size_t cols = 0;
  size_t stride = 0;

  MatView() = default;
  MatView(T* d, size_t r, size_t c) : MatView(d, r, c, c) {}
  MatView(T* d, size_t r, size_t c, size_t s) : data(d), rows(r), cols(c), stride(s) {}
  // A mutable view is also a constant one.
  template <typename U>
  requires(std::is_same_v<const U, T>)
      MatView(const MatView<U>& other)  // NOLINT(google-explicit-constructor)
      : MatView(other.data, other.rows, other.cols, other.stride) {}

  T* Row(size_t row) const { return data + row * stride; }
  MatView Rows(size_t first, size_t count) const {
    return MatView(data + first * stride, count, cols, stride);
  }
};

// Uninitialised, aligned storage that only grows: Resize keeps the allocation when it fits, so a
// workspace sized once never allocates again. Contents are undefined after Resize.
template <typename T>
class Mat {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Mat() = default;
  Mat(size_t rows, size_t cols) { Resize(rows, cols); }

  void Resize(size_t rows, size_t cols) {
    if (rows * cols > capacity_) {
      data_.reset();
      capacity_ = 0;
      data_.reset(static_cast<T*>(AllocateAligned(rows * cols * sizeof(T))));
      capacity_ = rows * cols;
    }
    rows_ = rows;
    cols_ = cols;
  }
  void Fill(T value) {
    for (size_t i = 0; i < rows_ * cols_; ++i) data_.get()[i] = value;
  }

  size_t rows() const { return rows_; }
  size_t cols() const { return cols_; }
  size_t bytes() const { return capacity_ * sizeof(T); }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T* Row(size_t row) { return data() + row * cols_; }
  const T* Row(size_t row) const { return data() + row * cols_; }
  MatView<T> View() { return {data(), rows_, cols_}; }
  MatView<const T> View() const { return {data(), rows_, cols_}; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  size_t rows_ = 0;
  size_t cols_ = 0;
  size_t capacity_ = 0;
};

}  // namespace spa
