// The memory behind KvCache, shared by its methods (kv_cache.cc) and Attend (attention.cc).
#pragma once

#include <cstddef>

#include "base/matrix.h"
#include "kernels/attention.h"
#include "kernels/panels.h"

namespace spa {

// Both operands of attention are laid out as right operands of the float micro-kernel
// (fma_tile-inl.h), head by head:
//   keys    [head][block of 16 rows][head_dim][16]: scores of 16 keys by broadcasting the query
//   values  [head][row][padded_dim]: outputs of 16 dimensions by broadcasting the weights
// Elements are float or half or, within each 16, bf16 in the order of PanelForm::kBF16.
struct KvCache::Store {
  size_t num_rows = 0;
  size_t num_kv_heads = 0;
  size_t head_dim = 0;
  KvType type = KvType::kF32;
  size_t padded_rows = 0;  // multiples of 16
  size_t padded_dim = 0;
  Mat<std::byte> keys;
  Mat<std::byte> values;

  size_t ElementBytes() const { return type == KvType::kF32 ? 4 : 2; }
  // Index of the 16 elements that hold dimension `dim` of the key at `row`, which is element
  // row % 16 of them.
  size_t KeyPanel(size_t head, size_t row, size_t dim) const {
    return ((head * padded_rows + row / kPanelWidth * kPanelWidth) * head_dim) + dim * kPanelWidth;
  }
  // Index of the first element of the value at `row`.
  size_t Value(size_t head, size_t row) const { return (head * padded_rows + row) * padded_dim; }
};

}  // namespace spa
