#include "kernels/block_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace spa {
namespace {

constexpr size_t kSmallBlock = 32;   // elements of Q4_0 ... Q8_0
constexpr size_t kSuperBlock = 256;  // elements of Q4_K ... Q6_K
constexpr float kMaxHalf = 65504.0f;

uint8_t U8(const std::byte* p) { return std::to_integer<uint8_t>(*p); }
int8_t I8(const std::byte* p) { return static_cast<int8_t>(U8(p)); }

uint16_t U16(const std::byte* p) {
  return static_cast<uint16_t>(U8(p) | (static_cast<uint16_t>(U8(p + 1)) << 8));
}

uint32_t U32(const std::byte* p) { return U16(p) | (static_cast<uint32_t>(U16(p + 2)) << 16); }

void PutU16(std::byte* p, uint16_t value) {
  p[0] = static_cast<std::byte>(value & 0xff);
  p[1] = static_cast<std::byte>(value >> 8);
}

// Integer arithmetic only for normal halves and an exact int-to-float product for subnormal ones,
// so the result does not depend on the processor's flush-to-zero mode.
float HalfToFloat(uint16_t half) {
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
uint16_t FloatToHalf(float value) {
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

uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float HalfAt(const std::byte* p) { return HalfToFloat(U16(p)); }

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

// The 256-element types. Q4_K and Q5_K have eight parts of 32 elements, each with a scale and a
// minimum of 6 bits; the twelve bytes hold four pairs whole and the other four in nibbles plus the
// two spare bits of the first.
struct PartScale {
  int scale;
  int min;
};

PartScale UnpackPartScale(const std::byte* packed, size_t part) {
  const auto s = [packed](size_t i) { return static_cast<int>(U8(packed + i)); };
  if (part < 4) return {s(part) & 63, s(part + 4) & 63};
  return {(s(part + 4) & 15) | ((s(part - 4) >> 6) << 4),
          (s(part + 4) >> 4) | ((s(part) >> 6) << 4)};
}

void PackPartScales(const std::array<PartScale, 8>& parts, std::byte* packed) {
  for (size_t j = 0; j < 4; ++j) {
    const PartScale& low = parts[j];
    const PartScale& high = parts[j + 4];
    packed[j] = static_cast<std::byte>(low.scale | ((high.scale >> 4) << 6));
    packed[j + 4] = static_cast<std::byte>(low.min | ((high.min >> 4) << 6));
    packed[j + 8] = static_cast<std::byte>((high.scale & 15) | ((high.min & 15) << 4));
  }
}

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

// The block encoders need finite numbers: NaN becomes 0 and larger values the largest that a block
// scale can still reach, so that no element can spoil its neighbours.
template <size_t kElements>
void CopyFinite(const float* src, float limit, float* dst) {
  for (size_t i = 0; i < kElements; ++i) {
    const float x = src[i];
    dst[i] = x != x ? 0.0f : std::min(std::max(x, -limit), limit);
  }
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

// The K-quant encoders minimise the plain squared error of a super-block: first the best real scale
// (and minimum) of every part by trying a range of grids with a least-squares fit on each, then the
// nearest integer scales and their neighbours, and last the common factor refitted to the result.

// Four floats in one register on every processor (compiler extension of GCC and Clang). Left to the
// vectoriser, the Q6_K search takes 1.7 times as long (GCC 12, SSE2).
using Lanes = float __attribute__((vector_size(16)));

// kLanes * 4 elements of a row.
template <size_t kLanes>
struct Values {
  Lanes lanes[kLanes];

  const Lanes& operator[](size_t i) const { return lanes[i]; }
  Lanes& operator[](size_t i) { return lanes[i]; }
};

template <size_t kLanes>
Values<kLanes> Load(const float* src) {
  Values<kLanes> values;
  std::memcpy(values.lanes, src, sizeof(values.lanes));
  return values;
}

template <size_t kLanes>
std::array<float, 4 * kLanes> Store(const Values<kLanes>& values) {
  std::array<float, 4 * kLanes> out;
  std::memcpy(out.data(), values.lanes, sizeof(values.lanes));
  return out;
}

float Total(Lanes x) { return (x[0] + x[1]) + (x[2] + x[3]); }

template <size_t kLanes>
float Sum(const Values<kLanes>& x) {
  Lanes sum{};
  for (size_t i = 0; i < kLanes; ++i) sum += x[i];
  return Total(sum);
}

template <size_t kLanes>
float Dot(const Values<kLanes>& x, const Values<kLanes>& y) {
  Lanes sum{};
  for (size_t i = 0; i < kLanes; ++i) sum += x[i] * y[i];
  return Total(sum);
}

// A part's values are scale * n - min.
struct Affine {
  float scale = 0.0f;
  float min = 0.0f;
};

template <size_t kLanes>
float SquaredError(const Values<kLanes>& x, Affine affine, const Values<kLanes>& n) {
  Lanes sum{};
  for (size_t i = 0; i < kLanes; ++i) {
    const Lanes error = affine.scale * n[i] - (affine.min + x[i]);
    sum += error * error;
  }
  return Total(sum);
}

// Below this range a part counts as constant: any half-precision scale is far coarser.
constexpr float kTinyRange = 1e-20f;

// The nearest n in low..high, ties to even.
template <size_t kLanes>
Values<kLanes> Nearest(const Values<kLanes>& x, Affine affine, float low, float high) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float inverse = std::fabs(affine.scale) > kTinyRange ? 1.0f / affine.scale : 0.0f;
  const Lanes lows = Lanes{} + low;
  const Lanes highs = Lanes{} + high;
  Values<kLanes> n;
  for (size_t i = 0; i < kLanes; ++i) {
    Lanes t = (x[i] + affine.min) * inverse;
    t = t > lows ? t : lows;
    t = t < highs ? t : highs;
    n[i] = (t + kMagic) - kMagic;
  }
  return n;
}

int NearestScale(float value, float unit, float low, float high) {
  if (unit == 0.0f) return 0;
  return static_cast<int>(std::min(std::max(std::round(value / unit), low), high));
}

// Q4_K: eight parts of 32 elements, n in 0..15, neither scale nor min negative.
using Part = Values<8>;

Part NearestNibbles(const Part& x, Affine affine) { return Nearest(x, affine, 0.0f, 15.0f); }

// Least squares over scale and min for given n.
Affine FitAffine(const Part& x, float sum_x, const Part& n) {
  constexpr float kCount = 32.0f;
  const float sum_n = Sum(n);
  const float sum_nn = Dot(n, n);
  const float sum_nx = Dot(n, x);
  const float determinant = kCount * sum_nn - sum_n * sum_n;
  Affine fit;
  if (determinant > 0.0f) {
    fit.scale = (kCount * sum_nx - sum_n * sum_x) / determinant;
    fit.min = (fit.scale * sum_n - sum_x) / kCount;
  }
  if (determinant <= 0.0f || fit.min < 0.0f || fit.scale < 0.0f) {
    fit.min = 0.0f;
    fit.scale = sum_nn > 0.0f ? std::max(sum_nx / sum_nn, 0.0f) : 0.0f;
  }
  return fit;
}

Affine SearchAffine(const Part& x) {
  // Grids of 14 to 17 steps over the part's range: more than 15 clip its ends. Twice as many grids
  // lower the error on Gaussian weights by 0.2 %.
  constexpr int kGrids = 8;
  constexpr float kFirstGrid = 14.0f;
  constexpr float kGridStep = 0.4f;
  const std::array<float, 32> elements = Store(x);
  const auto [smallest, largest] = std::ranges::minmax(elements);
  const float low = std::min(smallest, 0.0f);  // min is not negative, so the grid starts at <= 0
  Affine best = {0.0f, -low};
  if (largest - low < kTinyRange) return best;
  const float sum_x = Sum(x);
  float best_error = std::numeric_limits<float>::infinity();
  for (int grid = 0; grid < kGrids; ++grid) {
    const float steps = kFirstGrid + kGridStep * static_cast<float>(grid);
    const Part n = NearestNibbles(x, {(largest - low) / steps, -low});
    const Affine fit = FitAffine(x, sum_x, n);
    const float error = SquaredError(x, fit, n);
    if (error < best_error) {
      best_error = error;
      best = fit;
    }
  }
  return FitAffine(x, sum_x, NearestNibbles(x, best));
}

// The factors of a Q4_K super-block, both exact in half precision, and the parts' integers.
struct Q4_KScales {
  float d = 0.0f;
  float dmin = 0.0f;
  std::array<PartScale, 8> parts{};

  Affine At(PartScale ps) const {
    return {d * static_cast<float>(ps.scale), dmin * static_cast<float>(ps.min)};
  }
};

// Chooses the integers of every part for the factors in `scales`, near the wished real values.
// Returns the squared error of the super-block.
float ChooseParts(const std::array<Part, 8>& x, const std::array<Affine, 8>& wished,
                  Q4_KScales& scales) {
  float total = 0.0f;
  for (size_t part = 0; part < 8; ++part) {
    const int scale = NearestScale(wished[part].scale, scales.d, 0.0f, 63.0f);
    const int min = NearestScale(wished[part].min, scales.dmin, 0.0f, 63.0f);
    float best_error = std::numeric_limits<float>::infinity();
    for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, 63); ++s) {
      for (int m = std::max(min - 1, 0); m <= std::min(min + 1, 63); ++m) {
        const Affine affine = scales.At({s, m});
        const float error = SquaredError(x[part], affine, NearestNibbles(x[part], affine));
        if (error < best_error) {
          best_error = error;
          scales.parts[part] = {s, m};
        }
      }
    }
    total += best_error;
  }
  return total;
}

float RoundToHalf(double x) {
  const float limit = kMaxHalf;
  return HalfToFloat(FloatToHalf(std::min(std::max(static_cast<float>(x), -limit), limit)));
}

// Least squares over d and dmin for the integers chosen: x ~ d * (scale n) - dmin * min.
Q4_KScales Refit(const std::array<Part, 8>& x, Q4_KScales scales) {
  double nn = 0.0, nm = 0.0, mm = 0.0, nx = 0.0, mx = 0.0;
  for (size_t part = 0; part < 8; ++part) {
    const Part n = NearestNibbles(x[part], scales.At(scales.parts[part]));
    const double scale = scales.parts[part].scale;
    const double min = scales.parts[part].min;
    nn += scale * scale * Dot(n, n);
    nm += scale * min * Sum(n);
    mm += min * min * 32.0;
    nx += scale * Dot(n, x[part]);
    mx += min * Sum(x[part]);
  }
  const double determinant = nn * mm - nm * nm;
  if (determinant > 0.0) {
    scales.d = RoundToHalf(std::max((nx * mm - nm * mx) / determinant, 0.0));
    scales.dmin = RoundToHalf(std::max((nm * nx - nn * mx) / determinant, 0.0));
  } else if (nn > 0.0) {
    scales.d = RoundToHalf(std::max(nx / nn, 0.0));
  }
  return scales;
}

void EncodeQ4_K(const float* src, std::byte* block) {
  std::array<float, kSuperBlock> finite;
  CopyFinite<kSuperBlock>(src, kMaxHalf * 63, finite.data());
  std::array<Part, 8> x;
  std::array<Affine, 8> wished;
  Affine largest;
  for (size_t part = 0; part < 8; ++part) {
    x[part] = Load<8>(&finite[32 * part]);
    wished[part] = SearchAffine(x[part]);
    largest.scale = std::max(largest.scale, wished[part].scale);
    largest.min = std::max(largest.min, wished[part].min);
  }
  Q4_KScales best;
  best.d = RoundToHalf(largest.scale / 63.0f);
  best.dmin = RoundToHalf(largest.min / 63.0f);
  const float error = ChooseParts(x, wished, best);
  Q4_KScales refitted = Refit(x, best);
  if (ChooseParts(x, wished, refitted) < error) best = refitted;

  PutU16(block, FloatToHalf(best.d));
  PutU16(block + 2, FloatToHalf(best.dmin));
  PackPartScales(best.parts, block + 4);
  for (size_t part = 0; part < 8; part += 2) {
    const auto low = Store(NearestNibbles(x[part], best.At(best.parts[part])));
    const auto high = Store(NearestNibbles(x[part + 1], best.At(best.parts[part + 1])));
    for (size_t i = 0; i < 32; ++i) {
      const int byte = static_cast<int>(low[i]) | (static_cast<int>(high[i]) << 4);
      block[16 + 16 * part + i] = static_cast<std::byte>(byte);
    }
  }
}

// Q6_K: sixteen parts of 16 elements, n in -32..31, no min. The scale has a sign, so the element of
// largest magnitude can take the longer side.
using SmallPart = Values<4>;

SmallPart NearestSixBits(const SmallPart& x, float scale) {
  return Nearest(x, {scale, 0.0f}, -32.0f, 31.0f);
}

float SearchScale(const SmallPart& x) {
  // Grids that put the extreme element at -30.5 to -33.3.
  constexpr int kGrids = 8;
  constexpr float kFirstGrid = 30.5f;
  constexpr float kGridStep = 0.4f;
  float extreme = 0.0f;
  for (const float v : Store(x)) {
    if (std::fabs(v) > std::fabs(extreme)) extreme = v;
  }
  if (std::fabs(extreme) < kTinyRange) return 0.0f;
  float best = 0.0f;
  float best_error = std::numeric_limits<float>::infinity();
  for (int grid = 0; grid < kGrids; ++grid) {
    const float steps = kFirstGrid + kGridStep * static_cast<float>(grid);
    const SmallPart n = NearestSixBits(x, -extreme / steps);
    const float scale = Dot(n, x) / Dot(n, n);  // the extreme element's n is not 0
    const float error = SquaredError(x, {scale, 0.0f}, n);
    if (error < best_error) {
      best_error = error;
      best = scale;
    }
  }
  return best;
}

struct Q6_KScales {
  float d = 0.0f;  // exact in half precision
  std::array<int, 16> parts{};
};

float ChooseParts(const std::array<SmallPart, 16>& x, const std::array<float, 16>& wished,
                  Q6_KScales& scales) {
  float total = 0.0f;
  for (size_t part = 0; part < 16; ++part) {
    const int nearest = NearestScale(wished[part], scales.d, -128.0f, 127.0f);
    float best_error = std::numeric_limits<float>::infinity();
    for (int s = std::max(nearest - 1, -128); s <= std::min(nearest + 1, 127); ++s) {
      const float scale = scales.d * static_cast<float>(s);
      const float error = SquaredError(x[part], {scale, 0.0f}, NearestSixBits(x[part], scale));
      if (error < best_error) {
        best_error = error;
        scales.parts[part] = s;
      }
    }
    total += best_error;
  }
  return total;
}

Q6_KScales Refit(const std::array<SmallPart, 16>& x, Q6_KScales scales) {
  double nn = 0.0, nx = 0.0;
  for (size_t part = 0; part < 16; ++part) {
    const double scale = scales.parts[part];
    const SmallPart n = NearestSixBits(x[part], scales.d * static_cast<float>(scale));
    nn += scale * scale * Dot(n, n);
    nx += scale * Dot(n, x[part]);
  }
  if (nn > 0.0) scales.d = RoundToHalf(nx / nn);
  return scales;
}

void EncodeQ6_K(const float* src, std::byte* block) {
  std::array<float, kSuperBlock> finite;
  CopyFinite<kSuperBlock>(src, kMaxHalf * 127 * 31, finite.data());
  std::array<SmallPart, 16> x;
  std::array<float, 16> wished;
  float largest = 0.0f;
  for (size_t part = 0; part < 16; ++part) {
    x[part] = Load<4>(&finite[16 * part]);
    wished[part] = SearchScale(x[part]);
    if (std::fabs(wished[part]) > std::fabs(largest)) largest = wished[part];
  }
  Q6_KScales best;
  best.d = RoundToHalf(largest / -128.0f);
  const float error = ChooseParts(x, wished, best);
  Q6_KScales refitted = Refit(x, best);
  if (ChooseParts(x, wished, refitted) < error) best = refitted;

  std::array<int, kSuperBlock> q;
  for (size_t part = 0; part < 16; ++part) {
    const float scale = best.d * static_cast<float>(best.parts[part]);
    const std::array<float, 16> n = Store(NearestSixBits(x[part], scale));
    for (size_t i = 0; i < 16; ++i) q[16 * part + i] = static_cast<int>(n[i]) + 32;
    block[192 + part] = static_cast<std::byte>(best.parts[part]);
  }
  for (size_t h = 0; h < 2; ++h) {
    const int* half = &q[128 * h];
    for (size_t i = 0; i < 32; ++i) {
      const int q0 = half[i], q1 = half[i + 32], q2 = half[i + 64], q3 = half[i + 96];
      block[64 * h + i] = static_cast<std::byte>((q0 & 15) | ((q2 & 15) << 4));
      block[64 * h + 32 + i] = static_cast<std::byte>((q1 & 15) | ((q3 & 15) << 4));
      block[128 + 32 * h + i] = static_cast<std::byte>((q0 >> 4) | ((q1 >> 4) << 2) |
                                                       ((q2 >> 4) << 4) | ((q3 >> 4) << 6));
    }
  }
  PutU16(block + 208, FloatToHalf(best.d));
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
