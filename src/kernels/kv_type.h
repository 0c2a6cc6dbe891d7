// The types in which rows are kept between steps.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace spa {

enum class KvType { kF32, kF16, kBF16 };

constexpr std::string_view NameOf(KvType type) {
  return type == KvType::kF32 ? "f32" : type == KvType::kF16 ? "f16" : "bf16";
}
// Nothing for "auto": the model decides. Throws Error for an unknown name.
std::optional<KvType> ParseKvType(std::string_view name);

constexpr size_t ElementBytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }

// Rounds to nearest, ties to even. Values too large for a half become the largest half.
void EncodeKept(KvType type, const float* src, size_t count, std::byte* dst);
void DecodeKept(KvType type, const std::byte* src, size_t count, float* dst);
// dst[i] += src[i]
void AddKept(KvType type, const std::byte* src, size_t count, float* dst);
// Rounds numbers as keeping them would.
void RoundAsKept(KvType type, float* values, size_t count);

}  // namespace spa
