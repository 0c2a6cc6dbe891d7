#include "kernels/kquant_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/block_layout.h"

namespace spa {
namespace {

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

}  // namespace

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

}  // namespace spa
