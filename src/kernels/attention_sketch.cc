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

// dots[r] = queries[r] times the key, both [n]
HWY_INLINE void Dots(const float* const (&queries)[kFollowedTogether],
                     const float* HWY_RESTRICT key, size_t n, float (&dots)[kFollowedTogether]) {
  constexpr hn::CappedTag<float, 8> df;
  const size_t lanes = hn::Lanes(df);
  hn::Vec<decltype(df)> even[kFollowedTogether], odd[kFollowedTogether];
  for (size_t r = 0; r < kFollowedTogether; ++r) even[r] = odd[r] = hn::Zero(df);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto k0 = hn::LoadU(df, key + i), k1 = hn::LoadU(df, key + i + lanes);
    for (size_t r = 0; r < kFollowedTogether; ++r) {
      even[r] = hn::MulAdd(hn::LoadU(df, queries[r] + i), k0, even[r]);
      odd[r] = hn::MulAdd(hn::LoadU(df, queries[r] + i + lanes), k1, odd[r]);
    }
  }
  for (size_t r = 0; r < kFollowedTogether; ++r) {
    dots[r] = hn::GetLane(hn::SumOfLanes(df, hn::Add(even[r], odd[r])));
    for (size_t rest = i; rest < n; ++rest) dots[r] += queries[r][rest] * key[rest];
  }
}

// weights[r][change][new, old][head] = exp(score - log_sum), the share of the old sum of weights
void Weights(const KeyChanges& changes, std::span<const FollowedOutput> outputs,
             Mat<float>& weights) {
  constexpr hn::CappedTag<float, 8> df;
  const size_t num_heads = changes.num_heads, count = 2 * changes.size() * num_heads;
  weights.Resize(kFollowedTogether, (count + hn::Lanes(df) - 1) / hn::Lanes(df) * hn::Lanes(df));
  // Where there are fewer outputs the first is followed several times.
  const auto output = [&](size_t r) -> const FollowedOutput& {
    return outputs[r < outputs.size() ? r : 0];
  };
  for (size_t h = 0; h < num_heads; ++h) {
    const float* queries[kFollowedTogether];
    for (size_t r = 0; r < kFollowedTogether; ++r)
      queries[r] = output(r).query + h * changes.head_dim;
    const size_t first = h / changes.group * changes.head_dim;
    for (size_t c = 0; c < changes.size(); ++c) {
      for (size_t old = 0; old < 2; ++old) {
        const Mat<float>& keys = old == 1 ? changes.old_keys : changes.new_keys;
        float dots[kFollowedTogether];
        Dots(queries, keys.Row(c) + first, changes.head_dim, dots);
        for (size_t r = 0; r < kFollowedTogether; ++r) {
          weights.Row(r)[(2 * c + old) * num_heads + h] =
              changes.score_scale * dots[r] - output(r).log_sums[h];
        }
      }
    }
  }
  for (size_t r = 0; r < outputs.size(); ++r) {
    for (size_t i = 0; i < count; i += hn::Lanes(df)) {
      hn::StoreU(hn::Exp(df, hn::LoadU(df, weights.Row(r) + i)), df, weights.Row(r) + i);
    }
  }
}

// Brings one output up to date; false if it cannot be trusted.
bool UpdateOutput(const KeyChanges& changes, const float* HWY_RESTRICT weights,
                  const FollowedOutput& output) {
  constexpr DSketch df;
  const size_t num_heads = changes.num_heads;
  for (size_t h = 0; h < num_heads; ++h) {
    float sum = 1.0f;  // of weights, as a share of the old sum
    float* sketch = output.sketch + h * kSketchWidth;
    for (size_t c = 0; c < changes.size(); ++c) {
      const float added = weights[2 * c * num_heads + h];
      const float removed = changes.was_seen[c] != 0 ? weights[(2 * c + 1) * num_heads + h] : 0.0f;
      sum += added - removed;
      const float* new_value = changes.new_values.Row(c) + h * kSketchWidth;
      const float* old_value = changes.old_values.Row(c) + h * kSketchWidth;
      const auto add = hn::Set(df, added), remove = hn::Set(df, removed);
      for (size_t i = 0; i < kSketchWidth; i += hn::Lanes(df)) {
        const auto with = hn::MulAdd(add, hn::LoadU(df, new_value + i), hn::LoadU(df, sketch + i));
        hn::StoreU(hn::NegMulAdd(remove, hn::LoadU(df, old_value + i), with), df, sketch + i);
      }
    }
    if (!(sum >= kLeastShare && sum <= kLargestShare)) return false;
    const auto factor = hn::Set(df, 1.0f / sum);
    for (size_t i = 0; i < kSketchWidth; i += hn::Lanes(df)) {
      hn::StoreU(hn::Mul(hn::LoadU(df, sketch + i), factor), df, sketch + i);
    }
    output.log_sums[h] += std::log(sum);
  }
  return true;
}

void FollowOutputs(const KeyChanges& changes, std::span<FollowedOutput> outputs) {
  thread_local Mat<float> weights;
  for (size_t first = 0; first < outputs.size(); first += kFollowedTogether) {
    const auto some = outputs.subspan(first, std::min(kFollowedTogether, outputs.size() - first));
    Weights(changes, some, weights);
    for (size_t r = 0; r < some.size(); ++r) {
      some[r].is_trusted = UpdateOutput(changes, weights.Row(r), some[r]);
    }
  }
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(SketchRow);
HWY_EXPORT(FollowOutputs);

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

void Follow(const KeyChanges& changes, std::span<FollowedOutput> outputs) {
  HWY_DYNAMIC_DISPATCH(FollowOutputs)(changes, outputs);
}

}  // namespace spa
#endif  // HWY_ONCE
