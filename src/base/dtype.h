// Element types of stored tensors, with the numbers GGUF gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace spa {

enum class DType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  uint32_t block_size;   // elements per block
  uint32_t block_bytes;  // bytes per block
};

// The types this engine reads. nullptr for a number it does not know.
const DTypeInfo* FindDType(uint32_t gguf_id);
const DTypeInfo& Info(DType dtype);

// GGUF's name for any type number ("IQ2_XS"), known to the engine or not; empty if unassigned.
std::string_view GgufTypeName(uint32_t gguf_id);

// Case-insensitive: "q4_k" -> kQ4_K.
std::optional<DType> ParseDType(std::string_view name);

// Bytes of one row of `cols` elements; cols must be a multiple of the block size.
size_t RowBytes(DType dtype, size_t cols);

}  // namespace spa
