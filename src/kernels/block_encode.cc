// EncodeRow for the types where the nearest value is found directly; K-quants are searched for in
// kquant_search.cc.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "kernels/block_codec.h"
#include "kernels/block_layout.h"
#include "kernels/kquant_search.h"

namespace spa {
namespace {

uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Divides by the unrounded scale, as the reference encoder does.
void EncodeQ8_0(const float* src, std::byte* block) {
  std::array<float, kSmallBlock> x;
  CopyFinite<kSmallBlock>(src, kMaxHalf * 127, x.data());
  float largest = 0.0f;
  for (const float v : x) largest = std::max(largest, std::fabs(v));
  const float d = largest / 127.0f;
  const uint16_t half = FloatToHalf(d);
  PutU16(block, half);
  const float inverse = half == 0 ? 0.0f : 1.0f / d;
  for (size_t i = 0; i < kSmallBlock; ++i) {
    const float q = std::min(std::max(std::round(x[i] * inverse), -127.0f), 127.0f);
    block[2 + i] = static_cast<std::byte>(static_cast<int8_t>(q));
  }
}

// The element of largest magnitude becomes -8, whichever its sign.
void EncodeQ4_0(const float* src, std::byte* block) {
  std::array<float, kSmallBlock> x;
  CopyFinite<kSmallBlock>(src, kMaxHalf * 8, x.data());
  float extreme = 0.0f;
  for (const float v : x) {
    if (std::fabs(v) > std::fabs(extreme)) extreme = v;
  }
  const float d = extreme / -8.0f;
  const uint16_t half = FloatToHalf(d);
  PutU16(block, half);
  const float inverse = (half & 0x7fff) == 0 ? 0.0f : 1.0f / d;
  const auto nibble = [inverse](float v) {
    return std::min(15, static_cast<int>(std::max(v * inverse + 8.5f, 0.0f)));
  };
  for (size_t i = 0; i < 16; ++i) {
    block[2 + i] = static_cast<std::byte>(nibble(x[i]) | (nibble(x[i + 16]) << 4));
  }
}

template <auto kEncodeBlock, size_t kElements, size_t kBytes>
void EncodeBlocks(const float* src, size_t cols, std::byte* dst) {
  for (size_t i = 0; i < cols / kElements; ++i) {
    kEncodeBlock(src + i * kElements, dst + i * kBytes);
  }
}

void EncodeF16(const float* src, size_t cols, std::byte* dst) {
  for (size_t i = 0; i < cols; ++i) PutU16(dst + 2 * i, FloatToHalf(src[i]));
}

void EncodeBf16(const float* src, size_t cols, std::byte* dst) {
  for (size_t i = 0; i < cols; ++i) PutU16(dst + 2 * i, FloatToBf16(src[i]));
}

}  // namespace

void EncodeRow(DType dtype, const float* src, size_t cols, std::byte* dst) {
  SPA_CHECK(CanEncode(dtype) && cols % Info(dtype).block_size == 0);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(dst, src, cols * sizeof(float));
      return;
    case DType::kF16:
      return EncodeF16(src, cols, dst);
    case DType::kBF16:
      return EncodeBf16(src, cols, dst);
    case DType::kQ8_0:
      return EncodeBlocks<EncodeQ8_0, kSmallBlock, 34>(src, cols, dst);
    case DType::kQ4_0:
      return EncodeBlocks<EncodeQ4_0, kSmallBlock, 18>(src, cols, dst);
    case DType::kQ4_K:
      return EncodeBlocks<EncodeQ4_K, kSuperBlock, 144>(src, cols, dst);
    case DType::kQ6_K:
      return EncodeBlocks<EncodeQ6_K, kSuperBlock, 210>(src, cols, dst);
    default:
      SPA_CHECK(false);
  }
}

bool CanEncode(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_K:
    case DType::kQ6_K:
      return true;
    default:
      return false;
  }
}

}  // namespace spa
