// The memory behind KvCache, shared by its methods (kv_cache.cc) and Attend (attention.cc).
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/matrix.h"
#include "kernels/attention.h"
#include "kernels/panels.h"

namespace spa {

// Keys that attention takes at a time. Part of the definition of a result: the running maximum
// moves once per block.
inline constexpr size_t kKeyBlock = 64;

// Both operands of attention are laid out as right operands of the float micro-kernel
// (fma_tile-inl.h), head by head:
//   keys    [head][block of 16 rows][head_dim][16]: scores of 16 keys by broadcasting the query
//   values  [head][block of 64 rows][padded_dim / 16][row][16]: outputs of 16 dimensions by
//           broadcasting the weights; the last block has as many rows as there are
// Elements are float or half or, within each 16, bf16 in the order of PanelForm::kBF16. Values may
// also be signed bytes, to be multiplied by a float [head][row].
struct KvCache::Store {
  size_t num_rows = 0;
  size_t num_kv_heads = 0;
  size_t head_dim = 0;
  KvType type = KvType::kF32;
  size_t padded_rows = 0;  // multiples of 16
  size_t padded_dim = 0;
  size_t scale_rows = 0;  // a multiple of kKeyBlock; 0 if values have no scales
  Mat<std::byte> keys;
  Mat<std::byte> values;
  Mat<std::byte> value_scales;

  Store() = default;
  // Takes no memory yet.
  Store(size_t rows, size_t kv_heads, size_t dim, KvType kv_type)
      : num_rows(rows),
        num_kv_heads(kv_heads),
        head_dim(dim),
        type(kv_type),
        padded_rows(RoundUp(rows, kPanelWidth)),
        padded_dim(RoundUp(dim, kPanelWidth)),
        scale_rows(HasByteValues(kv_type) ? RoundUp(rows, kKeyBlock) : 0) {}

  // Of one element:
  size_t KeyBytes() const { return ElementBytes(KeptTypeOf(type)); }
  size_t ValueBytes() const { return HasByteValues(type) ? 1 : KeyBytes(); }
  // Of all:
  size_t KeysBytes() const { return num_kv_heads * padded_rows * head_dim * KeyBytes(); }
  size_t ValuesBytes() const { return num_kv_heads * padded_rows * padded_dim * ValueBytes(); }
  size_t ScalesBytes() const { return num_kv_heads * scale_rows * sizeof(float); }

  // Index of the 16 elements that hold dimension `dim` of the key at `row`, which is element
  // row % 16 of them.
  size_t KeyPanel(size_t head, size_t row, size_t dim) const {
    return ((head * padded_rows + row / kPanelWidth * kPanelWidth) * head_dim) + dim * kPanelWidth;
  }
  // Rows of the block of values that begins with first_row; 0 if there is none.
  size_t BlockRows(size_t first_row) const {
    return std::min(kKeyBlock, padded_rows - std::min(first_row, padded_rows));
  }
  // Index of dimension `dim`, a multiple of 16, of the value at `row`. The 16 elements from there
  // on are followed by those of the next row, up to the end of the block.
  size_t ValuePanel(size_t head, size_t row, size_t dim) const {
    const size_t first = row / kKeyBlock * kKeyBlock;
    return (head * padded_rows + first) * padded_dim + dim * BlockRows(first) +
           (row - first) * kPanelWidth;
  }
  // The scale of the value at `row`, followed by those of the rows behind it.
  const float* ValueScales(size_t head, size_t row) const {
    return reinterpret_cast<const float*>(value_scales.data()) + head * scale_rows + row;
  }
  float* ValueScales(size_t head, size_t row) {
    return reinterpret_cast<float*>(value_scales.data()) + head * scale_rows + row;
  }

 private:
  static size_t RoundUp(size_t n, size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
  }
};

}  // namespace spa
