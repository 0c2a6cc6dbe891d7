// Sums of products of bytes, in the instructions each target has for them. Vectors hold at most
// 32 bytes: 8 channels by 4 inputs.
#include <hwy/highway.h>

#if defined(SPA_KERNELS_BYTE_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPA_KERNELS_BYTE_DOT_INL_H_
#undef SPA_KERNELS_BYTE_DOT_INL_H_
#else
#define SPA_KERNELS_BYTE_DOT_INL_H_
#endif

// Whether four products are summed into 32 bits by one instruction.
#undef SPA_HAS_QUAD_DOT
#if HWY_TARGET == HWY_AVX3_DL || (HWY_TARGET == HWY_NEON && defined(__ARM_FEATURE_DOTPROD))
#define SPA_HAS_QUAD_DOT 1
#else
#define SPA_HAS_QUAD_DOT 0
#endif

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU8 = hn::CappedTag<uint8_t, 32>;
using DI8 = hn::Repartition<int8_t, DU8>;
using DI16 = hn::Repartition<int16_t, DU8>;
using DI32 = hn::Repartition<int32_t, DU8>;
using DF32 = hn::Repartition<float, DU8>;
using VU8 = hn::Vec<DU8>;
using VI8 = hn::Vec<DI8>;
using VI16 = hn::Vec<DI16>;
using VI32 = hn::Vec<DI32>;
using VF32 = hn::Vec<DF32>;

// 16-bit lane i = u[2i] s[2i] + u[2i+1] s[2i+1]. The caller keeps the sum below 2^15.
HWY_INLINE VI16 PairDot(VU8 u, VI8 s) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VI16{_mm256_maddubs_epi16(u.raw, s.raw)};
#elif HWY_TARGET == HWY_SSE4
  return VI16{_mm_maddubs_epi16(u.raw, s.raw)};
#elif HWY_TARGET == HWY_NEON
  const int8x16_t v = vreinterpretq_s8_u8(u.raw);  // the kernels' unsigned bytes are below 128
  return VI16(vpaddq_s16(vmull_s8(vget_low_s8(v), vget_low_s8(s.raw)), vmull_high_s8(v, s.raw)));
#else
#error "PairDot is not written for this target"
#endif
}

// The same for signed w; s is not -128.
HWY_INLINE VI16 PairDotSigned(VI8 w, VI8 s) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VI16{_mm256_maddubs_epi16(_mm256_abs_epi8(w.raw), _mm256_sign_epi8(s.raw, w.raw))};
#elif HWY_TARGET == HWY_SSE4
  return VI16{_mm_maddubs_epi16(_mm_abs_epi8(w.raw), _mm_sign_epi8(s.raw, w.raw))};
#elif HWY_TARGET == HWY_NEON
  return PairDot(hn::BitCast(DU8(), w), s);
#endif
}

// 32-bit lane i = v[2i] a + v[2i+1] b.
HWY_INLINE VI32 PairSum(VI16 v, int16_t a = 1, int16_t b = 1) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VI32{_mm256_madd_epi16(v.raw, _mm256_set1_epi32((b << 16) | (a & 0xffff)))};
#elif HWY_TARGET == HWY_SSE4
  return VI32{_mm_madd_epi16(v.raw, _mm_set1_epi32((b << 16) | (a & 0xffff)))};
#else
  const VI32 words = hn::BitCast(DI32(), v);
  const VI32 even = hn::ShiftRight<16>(hn::ShiftLeft<16>(words));
  const VI32 odd = hn::ShiftRight<16>(words);
  return hn::Add(hn::Mul(even, hn::Set(DI32(), a)), hn::Mul(odd, hn::Set(DI32(), b)));
#endif
}

// 32-bit lane i = v[2i] f[2i] + v[2i+1] f[2i+1].
HWY_INLINE VI32 PairSum(VI16 v, VI16 f) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VI32{_mm256_madd_epi16(v.raw, f.raw)};
#elif HWY_TARGET == HWY_SSE4
  return VI32{_mm_madd_epi16(v.raw, f.raw)};
#else
  const auto even = [](VI16 x) HWY_ATTR {
    return hn::ShiftRight<16>(hn::ShiftLeft<16>(hn::BitCast(DI32(), x)));
  };
  const auto odd = [](VI16 x) HWY_ATTR { return hn::ShiftRight<16>(hn::BitCast(DI32(), x)); };
  return hn::Add(hn::Mul(even(v), even(f)), hn::Mul(odd(v), odd(f)));
#endif
}

// Hides from the compiler how the vectors were made, and makes two of them before one is used.
// Without this GCC sees that integer sums may be taken in any order, turns chains of them into
// trees and spills the leaves: 1.3 times the FMA peak instead of 2. And where products alternate
// with additions, those take pipes of the multiplier: on Zen 3 two and two are faster.
template <class V, size_t kCount>
HWY_INLINE void KeepOrder(V (&v)[kCount]) {
  static_assert(kCount == 1 || kCount % 2 == 0);
#if HWY_ARCH_X86
#define SPA_REGISTER "+x"
#elif HWY_ARCH_ARM
#define SPA_REGISTER "+w"
#endif
  if constexpr (kCount == 1) {
    asm("" : SPA_REGISTER(v[0].raw));
  } else {
    for (size_t i = 0; i < kCount; i += 2) {
      asm("" : SPA_REGISTER(v[i].raw), SPA_REGISTER(v[i + 1].raw));
    }
  }
#undef SPA_REGISTER
}

#if SPA_HAS_QUAD_DOT
// sum + products of four: 32-bit lane i adds u[4i] s[4i] + ... + u[4i+3] s[4i+3].
HWY_INLINE VI32 QuadDot(VI32 sum, VU8 u, VI8 s) {
#if HWY_TARGET == HWY_AVX3_DL
  // Not the intrinsic: Highway 1.0 lets the compiler use AVX-VNNI for this target, whose encoding
  // most processors with AVX-512 do not know.
  asm("%{evex%} vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(u.raw), "v"(s.raw));
  return sum;
#else
  return VI32(vdotq_s32(sum.raw, vreinterpretq_s8_u8(u.raw), s.raw));
#endif
}
#endif

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
