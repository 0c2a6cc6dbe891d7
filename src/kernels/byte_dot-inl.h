// Sums of products of bytes, with the instructions of each target. A vector holds 4 inputs of 16
// channels (AVX3_DL), 8 or 4.
#include <hwy/highway.h>

#include <cstring>

#include "kernels/simd_targets.h"

#if defined(SPA_KERNELS_BYTE_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPA_KERNELS_BYTE_DOT_INL_H_
#undef SPA_KERNELS_BYTE_DOT_INL_H_
#else
#define SPA_KERNELS_BYTE_DOT_INL_H_
#endif

// Whether products are summed in quads, four into 32 bits by one instruction, or in pairs. AVX2 is
// compiled for both, and the processor decides.
#undef SPA_HAS_QUAD_DOT
#undef SPA_HAS_PAIR_DOT
#if HWY_TARGET == HWY_AVX2
#define SPA_HAS_QUAD_DOT 1
#define SPA_HAS_PAIR_DOT 1
#elif HWY_TARGET == HWY_AVX3_DL || (HWY_TARGET == HWY_NEON && defined(__ARM_FEATURE_DOTPROD))
#define SPA_HAS_QUAD_DOT 1
#define SPA_HAS_PAIR_DOT 0
#else
#define SPA_HAS_QUAD_DOT 0
#define SPA_HAS_PAIR_DOT 1
#endif

// Whether one instruction multiplies 8 inputs of two rows with those of two channels.
#undef SPA_HAS_MATRIX_DOT
#if HWY_TARGET == HWY_NEON && SPA_HAS_QUAD_DOT && defined(__ARM_FEATURE_MATMUL_INT8)
#define SPA_HAS_MATRIX_DOT 1
#else
#define SPA_HAS_MATRIX_DOT 0
#endif

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// AVX3 has no product of quads, so it gains nothing from 64 bytes.
using DU8 = hn::CappedTag<uint8_t, HWY_TARGET == HWY_AVX3_DL ? 64 : 32>;
using DI8 = hn::Repartition<int8_t, DU8>;
using DI16 = hn::Repartition<int16_t, DU8>;
using DI32 = hn::Repartition<int32_t, DU8>;
using DF32 = hn::Repartition<float, DU8>;
using VU8 = hn::Vec<DU8>;
using VI8 = hn::Vec<DI8>;
using VI16 = hn::Vec<DI16>;
using VI32 = hn::Vec<DI32>;
using VF32 = hn::Vec<DF32>;

HWY_INLINE bool SumsQuads() {
#if SPA_HAS_QUAD_DOT && SPA_HAS_PAIR_DOT
  return HasAvxVnni();
#else
  return SPA_HAS_QUAD_DOT;
#endif
}

// Four activations, or two sums of them, for every channel.
HWY_INLINE VI32 BroadcastWord(const void* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return hn::Set(DI32(), word);
}
HWY_INLINE VI8 BroadcastQuad(const int8_t* q) { return hn::BitCast(DI8(), BroadcastWord(q)); }
HWY_INLINE VI16 BroadcastPair(const int16_t* p) { return hn::BitCast(DI16(), BroadcastWord(p)); }

#if HWY_TARGET != HWY_AVX3_DL  // which sums quads, in vectors of 64 bytes

// 16-bit lane i = u[2i] s[2i] + u[2i+1] s[2i+1]. The caller keeps the sum below 2^15.
HWY_INLINE VI16 PairDot(VU8 u, VI8 s) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
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
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return VI16{_mm256_maddubs_epi16(_mm256_abs_epi8(w.raw), _mm256_sign_epi8(s.raw, w.raw))};
#elif HWY_TARGET == HWY_SSE4
  return VI16{_mm_maddubs_epi16(_mm_abs_epi8(w.raw), _mm_sign_epi8(s.raw, w.raw))};
#elif HWY_TARGET == HWY_NEON
  return PairDot(hn::BitCast(DU8(), w), s);
#endif
}

// 32-bit lane i = v[2i] a + v[2i+1] b.
HWY_INLINE VI32 PairSum(VI16 v, int16_t a = 1, int16_t b = 1) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
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
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
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

#endif  // HWY_TARGET != HWY_AVX3_DL

// Hides from the compiler how the vectors were made, and makes two of them before one is used.
// Without this GCC sees that integer sums may be taken in any order, turns chains of them into
// trees and spills the leaves: 1.3 times the FMA peak instead of 2. And if products alternate with
// additions, the additions take the multiplier's pipes: on Zen 3 two and two are faster.
template <class V, size_t kCount>
HWY_INLINE void KeepOrder(V (&v)[kCount]) {
  static_assert(kCount == 1 || kCount % 2 == 0);
#if HWY_TARGET == HWY_AVX3_DL
#define SPA_REGISTER "+v"  // any of 32
#elif HWY_ARCH_X86
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
// sum + products of four: 32-bit lane i adds u[4i] q[0] + ... + u[4i+3] q[3].
HWY_INLINE VI32 AddQuadDot(VI32 sum, VU8 u, const int8_t* q) {
#if HWY_TARGET == HWY_AVX3_DL
  // Not the intrinsic: Highway 1.0 does not let the compiler use AVX-512 VNNI for this target.
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(sum.raw)
      : "v"(u.raw), "m"(*reinterpret_cast<const int8_t(*)[4]>(q)));
  return sum;
#elif HWY_TARGET == HWY_AVX2
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(u.raw), "x"(BroadcastQuad(q).raw));
  return sum;
#else
  return VI32(vdotq_s32(sum.raw, vreinterpretq_s8_u8(u.raw), BroadcastQuad(q).raw));
#endif
}
#endif

#if SPA_HAS_MATRIX_DOT
// sums + products of eight, of rows q0 and q1 with channels u0 and u1: q0 u0, q0 u1, q1 u0, q1 u1.
HWY_INLINE VI32 AddMatrixDot(VI32 sums, VU8 u, const int8_t* q0, const int8_t* q1) {
  const int8x16_t q = vcombine_s8(vld1_s8(q0), vld1_s8(q1));
  return VI32(vmmlaq_s32(sums.raw, q, vreinterpretq_s8_u8(u.raw)));
}

// Lanes of type T of a and b in turn: a becomes those of the lower halves, b of the upper ones. Of
// two lanes each, it is undone by doing it again.
template <typename T, class V>
HWY_INLINE void Interleave(V& a, V& b) {
  constexpr hn::DFromV<V> d;
  constexpr hn::Repartition<T, decltype(d)> dt;
  const auto ta = hn::BitCast(dt, a), tb = hn::BitCast(dt, b);
  a = hn::BitCast(d, hn::InterleaveLower(dt, ta, tb));
  b = hn::BitCast(d, hn::InterleaveUpper(dt, ta, tb));
}
#endif

// sum + products of two: 32-bit lane i adds v[2i] p[0] + v[2i+1] p[1].
HWY_INLINE VI32 AddPairDot(VI32 sum, VI16 v, const int16_t* p) {
#if HWY_TARGET == HWY_AVX3_DL
  asm("vpdpwssd %2%{1to16%}, %1, %0"
      : "+v"(sum.raw)
      : "v"(v.raw), "m"(*reinterpret_cast<const int16_t(*)[2]>(p)));
  return sum;
#else
  return hn::Add(sum, PairSum(BroadcastPair(p), v));
#endif
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
