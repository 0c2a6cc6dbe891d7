#include "kernels/kv_type.h"

#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kv_type.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
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
    // Not Min and Max, which lose a NaN on Arm.
    const auto value = hn::LoadU(df, src + i);
    const auto is_too_large = hn::Gt(hn::Abs(value), max);
    const auto clamped = hn::IfThenElse(is_too_large, hn::CopySign(max, value), value);
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(dh, clamped)), d16, dst + i);
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

// The largest magnitude; NaN if there is one. Bits of magnitudes are ordered like integers, NaN
// last.
float LargestOrNan(const float* HWY_RESTRICT src, size_t count) {
  constexpr DF df;
  constexpr hn::RebindToSigned<DF> di;
  constexpr int32_t kNoSign = 0x7fffffff;
  auto most = hn::Zero(di);
  size_t i = 0;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    const auto bits = hn::BitCast(di, hn::LoadU(df, src + i));
    most = hn::Max(most, hn::And(bits, hn::Set(di, kNoSign)));
  }
  int32_t largest = hn::GetLane(hn::MaxOfLanes(di, most));
  for (; i < count; ++i) largest = std::max(largest, std::bit_cast<int32_t>(src[i]) & kNoSign);
  return std::bit_cast<float>(largest);
}

float EncodeScaled(const float* HWY_RESTRICT src, size_t count, int8_t* HWY_RESTRICT dst) {
  constexpr DF df;
  constexpr hn::Rebind<int8_t, DF> d8;
  const float largest = LargestOrNan(src, count);
  // Below this the reciprocal overflows; such values are zeros for any model.
  if (!(largest > 1e-30f)) {
    std::memset(dst, 0, count);
    return std::isnan(largest) ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  const float finite = std::min(largest, kMaxHalf);
  const float inverse = 127.0f / finite;
  const auto max = hn::Set(df, finite);
  size_t i = 0;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    const auto value = hn::Min(max, hn::Max(hn::Neg(max), hn::LoadU(df, src + i)));
    const auto q = hn::NearestInt(hn::Mul(value, hn::Set(df, inverse)));
    hn::StoreU(hn::DemoteTo(d8, q), d8, dst + i);
  }
  for (; i < count; ++i) {
    dst[i] = static_cast<int8_t>(std::nearbyint(std::clamp(src[i], -finite, finite) * inverse));
  }
  return finite / 127.0f;
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(EncodeHalves);
HWY_EXPORT(DecodeHalves);
HWY_EXPORT(AddHalves);
HWY_EXPORT(EncodeScaled);

namespace {

const uint16_t* Words(const std::byte* bytes) { return reinterpret_cast<const uint16_t*>(bytes); }
uint16_t* Words(std::byte* bytes) { return reinterpret_cast<uint16_t*>(bytes); }

float FromBf16(uint16_t word) { return std::bit_cast<float>(uint32_t{word} << 16); }

}  // namespace

void EncodeKept(KeptType type, const float* src, size_t count, std::byte* dst) {
  switch (type) {
    case KeptType::kF32:
      std::memcpy(dst, src, count * sizeof(float));
      return;
    case KeptType::kF16:
      HWY_DYNAMIC_DISPATCH(EncodeHalves)(src, count, Words(dst));
      return;
    case KeptType::kBF16:
      EncodeRow(DType::kBF16, src, count, dst);
      return;
  }
}

void DecodeKept(KeptType type, const std::byte* src, size_t count, float* dst) {
  switch (type) {
    case KeptType::kF32:
      std::memcpy(dst, src, count * sizeof(float));
      return;
    case KeptType::kF16:
      HWY_DYNAMIC_DISPATCH(DecodeHalves)(Words(src), count, dst);
      return;
    case KeptType::kBF16:
      for (size_t i = 0; i < count; ++i) dst[i] = FromBf16(Words(src)[i]);
      return;
  }
}

void AddKept(KeptType type, const std::byte* src, size_t count, float* dst) {
  switch (type) {
    case KeptType::kF32:
      for (size_t i = 0; i < count; ++i) dst[i] += reinterpret_cast<const float*>(src)[i];
      return;
    case KeptType::kF16:
      HWY_DYNAMIC_DISPATCH(AddHalves)(Words(src), count, dst);
      return;
    case KeptType::kBF16:
      for (size_t i = 0; i < count; ++i) dst[i] += FromBf16(Words(src)[i]);
      return;
  }
}

float EncodeBytes(const float* src, size_t count, int8_t* dst) {
  return HWY_DYNAMIC_DISPATCH(EncodeScaled)(src, count, dst);
}

std::optional<KvType> ParseKvType(std::string_view name) {
  if (name == "auto") return std::nullopt;
  std::string names = "auto";
  for (const KvType type : kAllKvTypes) {
    if (NameOf(type) == name) return type;
    names += (type == kAllKvTypes.back() ? " or " : ", ") + std::string(NameOf(type));
  }
  throw Error("the type of keys and values is {}, not '{}'", names, name);
}

void RoundAsKept(KeptType type, float* values, size_t count) {
  if (type == KeptType::kF32) return;
  std::vector<std::byte> kept(count * ElementBytes(type));
  EncodeKept(type, values, count, kept.data());
  DecodeKept(type, kept.data(), count, values);
}

}  // namespace spa
#endif  // HWY_ONCE
