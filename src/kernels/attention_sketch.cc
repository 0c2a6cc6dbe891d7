#include "kernels/attention_sketch.h"

#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_sketch.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
// After foreach_target, as it is compiled per target too.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DSketch = hn::CappedTag<float, kSketchWidth>;

// The share of the sum of weights that must remain or be added for a head to be followed.
constexpr float kLeastShare = 0.01f, kLargestShare = 1e4f;

void SketchRow(const float* HWY_RESTRICT row, size_t num_heads, size_t head_dim, size_t group,
               const float* HWY_RESTRICT signs, float* HWY_RESTRICT sketch) {
  constexpr DSketch df;
  const size_t lanes = hn::Lanes(df);
  const size_t whole = head_dim / kSketchWidth * kSketchWidth;
  for (size_t h = 0; h < num_heads; ++h) {
    const float* from = row + h / group * head_dim;
    const float* sign = signs + h * head_dim;
    float* to = sketch + h * kSketchWidth;
    for (size_t lane = 0; lane < kSketchWidth; lane += lanes) {
      auto sum = hn::Zero(df);
      for (size_t i = lane; i < whole; i += kSketchWidth) {
        sum = hn::MulAdd(hn::LoadU(df, from + i), hn::LoadU(df, sign + i), sum);
      }
      hn::StoreU(sum, df, to + lane);
    }
    for (size_t i = whole; i < head_dim; ++i) to[i - whole] += from[i] * sign[i];
  }
}

HWY_INLINE float Dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t n) {
  constexpr hn::CappedTag<float, 8> df;
  const size_t lanes = hn::Lanes(df);
  auto s0 = hn::Zero(df), s1 = hn::Zero(df);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    s0 = hn::MulAdd(hn::LoadU(df, a + i), hn::LoadU(df, b + i), s0);
    s1 = hn::MulAdd(hn::LoadU(df, a + i + lanes), hn::LoadU(df, b + i + lanes), s1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(df, hn::Add(s0, s1)));
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// weights[h] = exp(score - log_sum), the share of the old sum of weights.
// weights: [num_heads and what fills the last vector]
void Weights(const KeyChanges& changes, const float* query, const float* keys,
             const float* log_sums, float* weights) {
  constexpr hn::CappedTag<float, 8> df;
  for (size_t h = 0; h < changes.num_heads; ++h) {
    const float* key = keys + h / changes.group * changes.head_dim;
    weights[h] = changes.score_scale * Dot(query + h * changes.head_dim, key, changes.head_dim) -
                 log_sums[h];
  }
  for (size_t h = 0; h < changes.num_heads; h += hn::Lanes(df)) {
    hn::StoreU(hn::Exp(df, hn::LoadU(df, weights + h)), df, weights + h);
  }
}

bool FollowOutput(const KeyChanges& changes, const float* HWY_RESTRICT query,
                  const FollowedOutput& output) {
  constexpr DSketch df;
  constexpr size_t kMostHeads = 256;
  const size_t num_heads = changes.num_heads;
  if (num_heads > kMostHeads) return false;
  HWY_ALIGN float sums[kMostHeads];  // of weights, as a share of the old sum
  HWY_ALIGN float added[kMostHeads] = {}, removed[kMostHeads] = {};
  std::fill_n(sums, num_heads, 1.0f);
  for (size_t c = 0; c < changes.size(); ++c) {
    Weights(changes, query, changes.new_keys.Row(c), output.log_sums, added);
    if (changes.was_seen[c] != 0) {
      Weights(changes, query, changes.old_keys.Row(c), output.log_sums, removed);
    } else {
      std::fill_n(removed, num_heads, 0.0f);
    }
    const float* new_value = changes.new_values.Row(c);
    const float* old_value = changes.old_values.Row(c);
    for (size_t h = 0; h < num_heads; ++h) {
      sums[h] += added[h] - removed[h];
      const auto add = hn::Set(df, added[h]), remove = hn::Set(df, removed[h]);
      for (size_t i = h * kSketchWidth; i < (h + 1) * kSketchWidth; i += hn::Lanes(df)) {
        const auto with =
            hn::MulAdd(add, hn::LoadU(df, new_value + i), hn::LoadU(df, output.sketch + i));
        hn::StoreU(hn::NegMulAdd(remove, hn::LoadU(df, old_value + i), with), df,
                   output.sketch + i);
      }
    }
  }
  for (size_t h = 0; h < num_heads; ++h) {
    if (!(sums[h] >= kLeastShare && sums[h] <= kLargestShare)) return false;
    const auto factor = hn::Set(df, 1.0f / sums[h]);
    for (size_t i = h * kSketchWidth; i < (h + 1) * kSketchWidth; i += hn::Lanes(df)) {
      hn::StoreU(hn::Mul(hn::LoadU(df, output.sketch + i), factor), df, output.sketch + i);
    }
    output.log_sums[h] += std::log(sums[h]);
  }
  return true;
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(SketchRow);
HWY_EXPORT(FollowOutput);

std::vector<float> SketchSigns(size_t size) {
  constexpr uint64_t kSeed = 8;
  std::vector<float> signs(size);
  const RandomStream random(kSeed, 0, 0);
  for (size_t i = 0; i < size; ++i) signs[i] = random.Bits(i) % 2 == 0 ? 1.0f : -1.0f;
  return signs;
}

void SketchHeads(const float* row, size_t num_heads, size_t head_dim, size_t group,
                 const float* signs, float* sketch) {
  HWY_DYNAMIC_DISPATCH(SketchRow)(row, num_heads, head_dim, group, signs, sketch);
}

bool Follow(const KeyChanges& changes, const float* query, const FollowedOutput& output) {
  return HWY_DYNAMIC_DISPATCH(FollowOutput)(changes, query, output);
}

}  // namespace spa
#endif  // HWY_ONCE
