// Decodes and encodes stored rows: the definition of what the bytes of a tensor mean. Rows are
// independent; `cols` is a multiple of the type's block size. No alignment is assumed.
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace spa {

// dst[0..cols) = the values of the row. Exact for every type the engine reads.
void DecodeRow(DType dtype, const std::byte* src, size_t cols, float* dst);

// The inverse for F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K: nearest value, or for K-quants the scales
// that give the least squared error found by a small search. Deterministic.
void EncodeRow(DType dtype, const float* src, size_t cols, std::byte* dst);
bool CanEncode(DType dtype);

}  // namespace spa
