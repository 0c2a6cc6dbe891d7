// The bytes of stored blocks, shared by decoder and encoders: little-endian access, half precision,
// the packed scales of the K-quants. Internal to the codec.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace spa {

inline constexpr size_t kSmallBlock = 32;   // elements of Q4_0 ... Q8_0
inline constexpr size_t kSuperBlock = 256;  // elements of Q4_K ... Q6_K
inline constexpr float kMaxHalf = 65504.0f;

inline uint8_t U8(const std::byte* p) { return std::to_integer<uint8_t>(*p); }
inline int8_t I8(const std::byte* p) { return static_cast<int8_t>(U8(p)); }

inline uint16_t U16(const std::byte* p) {
  return static_cast<uint16_t>(U8(p) | (static_cast<uint16_t>(U8(p + 1)) << 8));
}

inline uint32_t U32(const std::byte* p) {
  return U16(p) | (static_cast<uint32_t>(U16(p + 2)) << 16);
}

inline void PutU16(std::byte* p, uint16_t value) {
  p[0] = static_cast<std::byte>(value & 0xff);
  p[1] = static_cast<std::byte>(value >> 8);
}

// Integer arithmetic only for normal halves and an exact int-to-float product for subnormal ones,
// so the result does not depend on the processor's flush-to-zero mode.
inline float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  uint32_t bits = (magnitude << 13) + (112u << 23);
  if (magnitude >= 0x7c00) bits += 112u << 23;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  if (magnitude < 0x0400) bits = subnormal;
  return std::bit_cast<float>(sign | bits);
}

// To the nearest half, ties to even; overflow gives infinity, a NaN stays a (quiet) NaN.
inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half;
  if (magnitude > 0x7f800000) {
    half = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  } else if (magnitude >= 0x477ff000) {  // 65520, halfway between the largest half and 2^16
    half = 0x7c00;
  } else if (magnitude >= 0x38800000) {  // 2^-14, the smallest normal half
    half = (magnitude + 0xfff + ((magnitude >> 13) & 1) - (112u << 23)) >> 13;
  } else {
    // The ulp of [0.5, 1) is that of subnormal halves, so the addition does the rounding.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  }
  return static_cast<uint16_t>(sign | half);
}

inline float HalfAt(const std::byte* p) { return HalfToFloat(U16(p)); }

// The 256-element types. Q4_K and Q5_K have eight parts of 32 elements, each with a scale and a
// minimum of 6 bits; the twelve bytes hold four pairs whole and the other four in nibbles plus the
// two spare bits of the first.
struct PartScale {
  int scale;
  int min;
};

inline PartScale UnpackPartScale(const std::byte* packed, size_t part) {
  const auto s = [packed](size_t i) { return static_cast<int>(U8(packed + i)); };
  if (part < 4) return {s(part) & 63, s(part + 4) & 63};
  return {(s(part + 4) & 15) | ((s(part - 4) >> 6) << 4),
          (s(part + 4) >> 4) | ((s(part) >> 6) << 4)};
}

inline void PackPartScales(const std::array<PartScale, 8>& parts, std::byte* packed) {
  for (size_t j = 0; j < 4; ++j) {
    const PartScale& low = parts[j];
    const PartScale& high = parts[j + 4];
    packed[j] = static_cast<std::byte>(low.scale | ((high.scale >> 4) << 6));
    packed[j + 4] = static_cast<std::byte>(low.min | ((high.min >> 4) << 6));
    packed[j + 8] = static_cast<std::byte>((high.scale & 15) | ((high.min & 15) << 4));
  }
}

// The block encoders need finite numbers: NaN becomes 0 and larger values the largest that a block
// scale can still reach, so that no element can spoil its neighbours.
template <size_t kElements>
inline void CopyFinite(const float* src, float limit, float* dst) {
  for (size_t i = 0; i < kElements; ++i) {
    const float x = src[i];
    dst[i] = x != x ? 0.0f : std::min(std::max(x, -limit), limit);
  }
}

}  // namespace spa
