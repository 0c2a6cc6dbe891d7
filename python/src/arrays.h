// NumPy arrays out of the engine's data, and row sets out of what a cache written in Python
// returns.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "base/matrix.h"
#include "transformer/row_set.h"

namespace spa::python {

namespace nb = nanobind;

template <typename T>
using Vector = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
template <typename T>
using Matrix = nb::ndarray<nb::numpy, T, nb::ndim<2>>;

// An array that owns these values.
template <typename To, typename From>
Vector<To> Copy(const From& values) {
  auto copy = std::make_unique<To[]>(values.size());
  std::ranges::copy(values, copy.get());
  To* data = copy.release();
  const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<To*>(p); });
  return Vector<To>(data, {values.size()}, owner);
}

// A matrix that NumPy takes over.
inline Matrix<float> Give(std::unique_ptr<Mat<float>> matrix) {
  Mat<float>* m = matrix.release();
  const nb::capsule owner(m, [](void* p) noexcept { delete static_cast<Mat<float>*>(p); });
  return Matrix<float>(m->data(), {m->rows(), m->cols()}, owner);
}

// Rows as Python names them: whole numbers in any order, or True and False for every row. Throws
// Error unless all of them are among the given ones; `who` begins the message.
RowSet ReadRows(nb::handle value, const RowSet& among, size_t num_rows, const char* who);

}  // namespace spa::python
