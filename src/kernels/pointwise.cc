#include "kernels/pointwise.h"

#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pointwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "kernels/parallel_rows.h"
// After foreach_target, as it is compiled per target too.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// gain may be null; y may be x.
void RmsNormRow(const float* x, const float* HWY_RESTRICT gain, float epsilon, size_t n, float* y) {
  constexpr hn::ScalableTag<float> df;
  constexpr hn::Half<decltype(df)> dh;
  constexpr hn::Repartition<double, decltype(df)> dd;
  const size_t lanes = hn::Lanes(df);
  // Rounds where llama.cpp rounds (float squares, double sum), so that quantising the result breaks
  // ties the same way.
  auto s0 = hn::Zero(dd), s1 = hn::Zero(dd);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto value = hn::LoadU(df, x + i);
    const auto square = hn::Mul(value, value);
    s0 = hn::Add(s0, hn::PromoteTo(dd, hn::LowerHalf(dh, square)));
    s1 = hn::Add(s1, hn::PromoteTo(dd, hn::UpperHalf(dh, square)));
  }
  double sum = hn::GetLane(hn::SumOfLanes(dd, hn::Add(s0, s1)));
  for (; i < n; ++i) sum += static_cast<double>(x[i] * x[i]);
  const float mean = static_cast<float>(sum / static_cast<double>(n));
  const float scale = 1.0f / std::sqrt(mean + epsilon);

  const auto factor = hn::Set(df, scale);
  for (i = 0; i + lanes <= n; i += lanes) {
    auto normed = hn::Mul(hn::LoadU(df, x + i), factor);
    if (gain != nullptr) normed = hn::Mul(normed, hn::LoadU(df, gain + i));
    hn::StoreU(normed, df, y + i);
  }
  for (; i < n; ++i) y[i] = gain != nullptr ? x[i] * scale * gain[i] : x[i] * scale;
}

void RopeRow(float* HWY_RESTRICT x, const float* HWY_RESTRICT cosine,
             const float* HWY_RESTRICT sine, size_t rope_dim, size_t head_dim, size_t n) {
  constexpr hn::CappedTag<float, 4> df;  // half a head may be as short as 4
  const size_t half = rope_dim / 2;
  for (float* head = x; head < x + n; head += head_dim) {
    size_t j = 0;
    for (; j + hn::Lanes(df) <= half; j += hn::Lanes(df)) {
      const auto a = hn::LoadU(df, head + j), b = hn::LoadU(df, head + j + half);
      const auto c = hn::LoadU(df, cosine + j), s = hn::LoadU(df, sine + j);
      hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), df, head + j);
      hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), df, head + j + half);
    }
    for (; j < half; ++j) {
      const float a = head[j], b = head[j + half];
      head[j] = a * cosine[j] - b * sine[j];
      head[j + half] = b * cosine[j] + a * sine[j];
    }
  }
}

struct Silu {
  template <class D>
  static HWY_INLINE hn::Vec<D> Of(D df, hn::Vec<D> x) {
    // exp overflows above 88; silu is zero to float precision long before.
    const auto e = hn::Exp(df, hn::Min(hn::Neg(x), hn::Set(df, 88.0f)));
    return hn::Div(x, hn::Add(hn::Set(df, 1.0f), e));
  }
};

struct Gelu {
  // (1 + tanh(z)) / 2 = 1 / (1 + exp(-2z))
  template <class D>
  static HWY_INLINE hn::Vec<D> Of(D df, hn::Vec<D> x) {
    const auto cubic = hn::MulAdd(hn::Mul(hn::Set(df, 0.044715f), hn::Mul(x, x)), x, x);
    const auto minus_2z = hn::Mul(hn::Set(df, -1.5957691216057308f), cubic);  // -2 sqrt(2 / pi)
    const auto e = hn::Exp(df, hn::Min(minus_2z, hn::Set(df, 88.0f)));
    return hn::Div(x, hn::Add(hn::Set(df, 1.0f), e));
  }
};

// gate = Activation(gate) * up
template <class Activation>
HWY_INLINE void GatedRow(float* HWY_RESTRICT gate, const float* HWY_RESTRICT up, size_t n) {
  const auto apply = [&](auto df, size_t i) HWY_ATTR {
    const auto active = Activation::Of(df, hn::LoadU(df, gate + i));
    hn::StoreU(hn::Mul(active, hn::LoadU(df, up + i)), df, gate + i);
  };
  constexpr hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) apply(df, i);
  // One lane at a time, with the same operations, so a value does not depend on its place.
  for (; i < n; ++i) apply(hn::CappedTag<float, 1>(), i);
}

void SwiGluRow(float* gate, const float* up, size_t n) { GatedRow<Silu>(gate, up, n); }
void GeGluRow(float* gate, const float* up, size_t n) { GatedRow<Gelu>(gate, up, n); }

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(RopeRow);
HWY_EXPORT(SwiGluRow);
HWY_EXPORT(GeGluRow);

void RmsNorm(MatView<const float> x, std::span<const uint32_t> rows, const float* gain,
             float epsilon, MatView<float> y, ThreadPool& pool) {
  SPA_CHECK(y.rows == rows.size() && y.cols == x.cols);
  ParallelRows(pool, rows.size(), x.cols, [&](size_t i) {
    HWY_DYNAMIC_DISPATCH(RmsNormRow)(x.Row(rows[i]), gain, epsilon, x.cols, y.Row(i));
  });
}

void RmsNormHeads(MatView<float> rows, size_t head_dim, const float* gain, float epsilon,
                  ThreadPool& pool) {
  SPA_CHECK(rows.cols % head_dim == 0);
  ParallelRows(pool, rows.rows, rows.cols, [&](size_t i) {
    for (size_t first = 0; first < rows.cols; first += head_dim) {
      float* head = rows.Row(i) + first;
      HWY_DYNAMIC_DISPATCH(RmsNormRow)(head, gain, epsilon, head_dim, head);
    }
  });
}

namespace {

std::vector<double> RopeFrequencies(size_t rope_dim, double theta) {
  std::vector<double> frequencies(rope_dim / 2);
  for (size_t j = 0; j < frequencies.size(); ++j) {
    frequencies[j] = std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(rope_dim));
  }
  return frequencies;
}

}  // namespace

RopeTable::RopeTable(size_t num_positions, size_t rope_dim, double theta)
    : RopeTable(num_positions, RopeFrequencies(rope_dim, theta)) {}

RopeTable::RopeTable(size_t num_positions, std::span<const double> frequencies)
    : cos_(num_positions, frequencies.size()), sin_(num_positions, frequencies.size()) {
  for (size_t j = 0; j < frequencies.size(); ++j) {
    for (size_t position = 0; position < num_positions; ++position) {
      const double angle = static_cast<double>(position) * frequencies[j];
      cos_.Row(position)[j] = static_cast<float>(std::cos(angle));
      sin_.Row(position)[j] = static_cast<float>(std::sin(angle));
    }
  }
}

void Rope(MatView<float> x, std::span<const uint32_t> positions, size_t head_dim,
          const RopeTable& table, ThreadPool& pool) {
  SPA_CHECK(x.rows == positions.size() && x.cols % head_dim == 0 && table.rope_dim() <= head_dim);
  ParallelRows(pool, x.rows, x.cols, [&](size_t i) {
    const uint32_t position = positions[i];
    HWY_DYNAMIC_DISPATCH(RopeRow)
    (x.Row(i), table.Cos(position), table.Sin(position), table.rope_dim(), head_dim, x.cols);
  });
}

void SwiGlu(MatView<float> gate, MatView<const float> up, ThreadPool& pool) {
  SPA_CHECK(gate.rows == up.rows && gate.cols == up.cols);
  ParallelRows(pool, gate.rows, gate.cols, [&](size_t i) {
    HWY_DYNAMIC_DISPATCH(SwiGluRow)(gate.Row(i), up.Row(i), gate.cols);
  });
}

void GeGlu(MatView<float> gate, MatView<const float> up, ThreadPool& pool) {
  SPA_CHECK(gate.rows == up.rows && gate.cols == up.cols);
  ParallelRows(pool, gate.rows, gate.cols, [&](size_t i) {
    HWY_DYNAMIC_DISPATCH(GeGluRow)(gate.Row(i), up.Row(i), gate.cols);
  });
}

}  // namespace spa
#endif  // HWY_ONCE
