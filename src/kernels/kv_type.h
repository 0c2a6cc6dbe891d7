// The types in which rows are kept between steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace spa {

// The type of a number in a kept row.
enum class KeptType { kF32, kF16, kBF16 };

constexpr size_t ElementBytes(KeptType type) { return type == KeptType::kF32 ? 4 : 2; }

// What a sequence is kept in (`--kv`).
enum class KvType {
  kF32,
  kF16,
  kBF16,
  kF16Q8,  // as kF16, but values in bytes, with a scale for each row and head
};

inline constexpr std::array kAllKvTypes = {KvType::kF32, KvType::kF16, KvType::kBF16,
                                           KvType::kF16Q8};

constexpr std::string_view NameOf(KvType type) {
  constexpr std::string_view kNames[] = {"f32", "f16", "bf16", "f16-q8"};
  return kNames[static_cast<size_t>(type)];
}
// Nothing for "auto": the model decides. Throws Error for an unknown name.
std::optional<KvType> ParseKvType(std::string_view name);

// The type of keys, and of all kept rows but values.
constexpr KeptType KeptTypeOf(KvType type) {
  switch (type) {
    case KvType::kF32:
      return KeptType::kF32;
    case KvType::kBF16:
      return KeptType::kBF16;
    case KvType::kF16:
    case KvType::kF16Q8:
      break;
  }
  return KeptType::kF16;
}
// Whether values are bytes; else they are kept as keys are.
constexpr bool HasByteValues(KvType type) { return type == KvType::kF16Q8; }

// Rounds to nearest, ties to even. Values too large for a half become the largest half.
void EncodeKept(KeptType type, const float* src, size_t count, std::byte* dst);
void DecodeKept(KeptType type, const std::byte* src, size_t count, float* dst);
// dst[i] += src[i]
void AddKept(KeptType type, const std::byte* src, size_t count, float* dst);
// Rounds numbers as keeping them would.
void RoundAsKept(KeptType type, float* values, size_t count);

// src[i] is about scale * dst[i], where the scale, which is returned, is the largest magnitude /
// 127. Rounds to nearest, ties to even. Values too large for a half become the largest half; a NaN
// makes the scale one.
float EncodeBytes(const float* src, size_t count, int8_t* dst);

}  // namespace spa
