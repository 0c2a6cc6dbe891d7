#include "kernels/kv_type.h"

#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kv_type.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "kernels/block_codec.h"
#include "kernels/block_layout.h"

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 8>;

// Other targets convert in software, which truncates and ignores NaN.
#undef SPA_CONVERTS_HALVES
#define SPA_CONVERTS_HALVES (HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON)

void EncodeHalves(const float* HWY_RESTRICT src, size_t count, uint16_t* HWY_RESTRICT dst) {
  size_t i = 0;
#if SPA_CONVERTS_HALVES
  constexpr DF df;
  constexpr hn::Rebind<uint16_t, DF> d16;
  constexpr hn::Rebind<hwy::float16_t, DF> dh;
  const auto max = hn::Set(df, kMaxHalf);
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    const auto value = hn::Min(max, hn::Max(hn::Neg(max), hn::LoadU(df, src + i)));
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(dh, value)), d16, dst + i);
  }
#endif
  for (; i < count; ++i) dst[i] = FloatToHalf(std::clamp(src[i], -kMaxHalf, kMaxHalf));
}

// dst = src, or dst += src
template <bool kAdd>
void TakeHalves(const uint16_t* HWY_RESTRICT src, size_t count, float* HWY_RESTRICT dst) {
  size_t i = 0;
#if SPA_CONVERTS_HALVES
  constexpr DF df;
  constexpr hn::Rebind<uint16_t, DF> d16;
  constexpr hn::Rebind<hwy::float16_t, DF> dh;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    auto value = hn::PromoteTo(df, hn::BitCast(dh, hn::LoadU(d16, src + i)));
    if constexpr (kAdd) value = hn::Add(hn::LoadU(df, dst + i), value);
    hn::StoreU(value, df, dst + i);
  }
#endif
  for (; i < count; ++i) {
    const float value = HalfToFloat(src[i]);
    dst[i] = kAdd ? dst[i] + value : value;
  }
}

void DecodeHalves(const uint16_t* src, size_t count, float* dst) {
  TakeHalves<false>(src, count, dst);
}
void AddHalves(const uint16_t* src, size_t count, float* dst) { TakeHalves<true>(src, count, dst); }

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(EncodeHalves);
HWY_EXPORT(DecodeHalves);
HWY_EXPORT(AddHalves);

namespace {

const uint16_t* Words(const std::byte* bytes) { return reinterpret_cast<const uint16_t*>(bytes); }
uint16_t* Words(std::byte* bytes) { return reinterpret_cast<uint16_t*>(bytes); }

float FromBf16(uint16_t word) { return std::bit_cast<float>(uint32_t{word} << 16); }

}  // namespace

void EncodeKept(KvType type, const float* src, size_t count, std::byte* dst) {
  switch (type) {
    case KvType::kF32:
      std::memcpy(dst, src, count * sizeof(float));
      return;
    case KvType::kF16:
      HWY_DYNAMIC_DISPATCH(EncodeHalves)(src, count, Words(dst));
      return;
    case KvType::kBF16:
      EncodeRow(DType::kBF16, src, count, dst);
      return;
  }
}

void DecodeKept(KvType type, const std::byte* src, size_t count, float* dst) {
  switch (type) {
    case KvType::kF32:
      std::memcpy(dst, src, count * sizeof(float));
      return;
    case KvType::kF16:
      HWY_DYNAMIC_DISPATCH(DecodeHalves)(Words(src), count, dst);
      return;
    case KvType::kBF16:
      for (size_t i = 0; i < count; ++i) dst[i] = FromBf16(Words(src)[i]);
      return;
  }
}

void AddKept(KvType type, const std::byte* src, size_t count, float* dst) {
  switch (type) {
    case KvType::kF32:
      for (size_t i = 0; i < count; ++i) dst[i] += reinterpret_cast<const float*>(src)[i];
      return;
    case KvType::kF16:
      HWY_DYNAMIC_DISPATCH(AddHalves)(Words(src), count, dst);
      return;
    case KvType::kBF16:
      for (size_t i = 0; i < count; ++i) dst[i] += FromBf16(Words(src)[i]);
      return;
  }
}

std::optional<KvType> ParseKvType(std::string_view name) {
  if (name == "auto") return std::nullopt;
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    if (NameOf(type) == name) return type;
  }
  throw Error("the type of keys and values is auto, f32, f16 or bf16, not '{}'", name);
}

void RoundAsKept(KvType type, float* values, size_t count) {
  if (type == KvType::kF32) return;
  std::vector<std::byte> kept(count * ElementBytes(type));
  EncodeKept(type, values, count, kept.data());
  DecodeKept(type, kept.data(), count, values);
}

}  // namespace spa
#endif  // HWY_ONCE
