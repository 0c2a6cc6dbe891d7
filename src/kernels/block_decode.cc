// DecodeRow: what the bytes of every stored type mean.
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "kernels/block_codec.h"
#include "kernels/block_layout.h"

namespace spa {
namespace {

void DecodeF32(const std::byte* src, size_t cols, float* dst) {
  std::memcpy(dst, src, cols * sizeof(float));
}

void DecodeF16(const std::byte* src, size_t cols, float* dst) {
  for (size_t i = 0; i < cols; ++i) dst[i] = HalfAt(src + 2 * i);
}

void DecodeBf16(const std::byte* src, size_t cols, float* dst) {
  for (size_t i = 0; i < cols; ++i) {
    dst[i] = std::bit_cast<float>(static_cast<uint32_t>(U16(src + 2 * i)) << 16);
  }
}

// The 32-element types: low nibbles are the first half of the block, high nibbles the second.

void DecodeQ8_0(const std::byte* block, float* dst) {
  const float d = HalfAt(block);
  for (size_t i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(I8(block + 2 + i));
}

void DecodeQ4_0(const std::byte* block, float* dst) {
  const float d = HalfAt(block);
  for (size_t i = 0; i < 16; ++i) {
    const int q = U8(block + 2 + i);
    dst[i] = d * static_cast<float>((q & 15) - 8);
    dst[i + 16] = d * static_cast<float>((q >> 4) - 8);
  }
}

void DecodeQ4_1(const std::byte* block, float* dst) {
  const float d = HalfAt(block);
  const float m = HalfAt(block + 2);
  for (size_t i = 0; i < 16; ++i) {
    const int q = U8(block + 4 + i);
    dst[i] = d * static_cast<float>(q & 15) + m;
    dst[i + 16] = d * static_cast<float>(q >> 4) + m;
  }
}

void DecodeQ5_0(const std::byte* block, float* dst) {
  const float d = HalfAt(block);
  const uint32_t high = U32(block + 2);
  for (uint32_t i = 0; i < 16; ++i) {
    const int q = U8(block + 6 + i);
    const int high_low = static_cast<int>((high >> i) & 1) << 4;
    const int high_high = static_cast<int>((high >> (i + 16)) & 1) << 4;
    dst[i] = d * static_cast<float>(((q & 15) | high_low) - 16);
    dst[i + 16] = d * static_cast<float>(((q >> 4) | high_high) - 16);
  }
}

void DecodeQ5_1(const std::byte* block, float* dst) {
  const float d = HalfAt(block);
  const float m = HalfAt(block + 2);
  const uint32_t high = U32(block + 4);
  for (uint32_t i = 0; i < 16; ++i) {
    const int q = U8(block + 8 + i);
    const int high_low = static_cast<int>((high >> i) & 1) << 4;
    const int high_high = static_cast<int>((high >> (i + 16)) & 1) << 4;
    dst[i] = d * static_cast<float>((q & 15) | high_low) + m;
    dst[i + 16] = d * static_cast<float>((q >> 4) | high_high) + m;
  }
}

// The 256-element types.

void DecodeQ4_K(const std::byte* block, float* dst) {
  const float d = HalfAt(block);
  const float dmin = HalfAt(block + 2);
  for (size_t part = 0; part < 8; ++part) {
    const PartScale ps = UnpackPartScale(block + 4, part);
    const float scale = d * static_cast<float>(ps.scale);
    const float min = dmin * static_cast<float>(ps.min);
    const std::byte* nibbles = block + 16 + 32 * (part / 2);
    const int shift = part % 2 == 0 ? 0 : 4;
    for (size_t i = 0; i < 32; ++i) {
      dst[32 * part + i] = scale * static_cast<float>((U8(nibbles + i) >> shift) & 15) - min;
    }
  }
}

void DecodeQ5_K(const std::byte* block, float* dst) {
  const float d = HalfAt(block);
  const float dmin = HalfAt(block + 2);
  for (size_t part = 0; part < 8; ++part) {
    const PartScale ps = UnpackPartScale(block + 4, part);
    const float scale = d * static_cast<float>(ps.scale);
    const float min = dmin * static_cast<float>(ps.min);
    const std::byte* high = block + 16;
    const std::byte* nibbles = block + 48 + 32 * (part / 2);
    const int shift = part % 2 == 0 ? 0 : 4;
    for (size_t i = 0; i < 32; ++i) {
      const int q = ((U8(nibbles + i) >> shift) & 15) | (((U8(high + i) >> part) & 1) << 4);
      dst[32 * part + i] = scale * static_cast<float>(q) - min;
    }
  }
}

// Q6_K: element 128 h + 32 k + i has its low four bits in QL[64 h + 32 (k & 1) + i] (low nibble for
// k < 2) and its high two in bits 2k of QH[32 h + i]; each 16 elements share a signed scale.
void DecodeQ6_K(const std::byte* block, float* dst) {
  const float d = HalfAt(block + 208);
  for (size_t h = 0; h < 2; ++h) {
    const std::byte* high = block + 128 + 32 * h;
    for (size_t k = 0; k < 4; ++k) {
      const std::byte* nibbles = block + 64 * h + 32 * (k % 2);
      const int shift = k < 2 ? 0 : 4;
      for (size_t i = 0; i < 32; ++i) {
        const size_t e = 128 * h + 32 * k + i;
        const int low = (U8(nibbles + i) >> shift) & 15;
        const int q = (low | (((U8(high + i) >> (2 * k)) & 3) << 4)) - 32;
        dst[e] = d * static_cast<float>(I8(block + 192 + e / 16)) * static_cast<float>(q);
      }
    }
  }
}

template <auto kDecodeBlock, size_t kElements, size_t kBytes>
void DecodeBlocks(const std::byte* src, size_t cols, float* dst) {
  for (size_t i = 0; i < cols / kElements; ++i) {
    kDecodeBlock(src + i * kBytes, dst + i * kElements);
  }
}

}  // namespace

void DecodeRow(DType dtype, const std::byte* src, size_t cols, float* dst) {
  SPA_CHECK(cols % Info(dtype).block_size == 0);
  switch (dtype) {
    case DType::kF32:
      return DecodeF32(src, cols, dst);
    case DType::kF16:
      return DecodeF16(src, cols, dst);
    case DType::kBF16:
      return DecodeBf16(src, cols, dst);
    case DType::kQ8_0:
      return DecodeBlocks<DecodeQ8_0, kSmallBlock, 34>(src, cols, dst);
    case DType::kQ4_0:
      return DecodeBlocks<DecodeQ4_0, kSmallBlock, 18>(src, cols, dst);
    case DType::kQ4_1:
      return DecodeBlocks<DecodeQ4_1, kSmallBlock, 20>(src, cols, dst);
    case DType::kQ5_0:
      return DecodeBlocks<DecodeQ5_0, kSmallBlock, 22>(src, cols, dst);
    case DType::kQ5_1:
      return DecodeBlocks<DecodeQ5_1, kSmallBlock, 24>(src, cols, dst);
    case DType::kQ4_K:
      return DecodeBlocks<DecodeQ4_K, kSuperBlock, 144>(src, cols, dst);
    case DType::kQ5_K:
      return DecodeBlocks<DecodeQ5_K, kSuperBlock, 176>(src, cols, dst);
    case DType::kQ6_K:
      return DecodeBlocks<DecodeQ6_K, kSuperBlock, 210>(src, cols, dst);
  }
  SPA_CHECK(false);
}

}  // namespace spa
