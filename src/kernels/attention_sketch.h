// Attention outputs of unchanged queries, followed in a sketch while some keys and values change.
//
// A query's output is the mean of the values, weighted by exp(score). When key j changes, two terms
// of that mean change, so a sketch of the output is brought up to date with two scores per changed
// key instead of all of them. A sketch has kSketchWidth sums of signed elements for each head:
// random signs keep lengths and angles on average (count sketch).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/matrix.h"

namespace spa {

inline constexpr size_t kSketchWidth = 8;

// A random sign for each element of a row of heads.
std::vector<float> SketchSigns(size_t size);

// The sketch of query head h from what lies in `row` for head h / group: `group` is 1 for attention
// outputs, and the number of query heads per KV head for values.
// row: [num_heads / group * head_dim], signs: [num_heads * head_dim],
// sketch: [num_heads * kSketchWidth]
void SketchHeads(const float* row, size_t num_heads, size_t head_dim, size_t group,
                 const float* signs, float* sketch);

// Keys and values of a layer before and after a step changed them.
struct KeyChanges {
  size_t num_heads = 0, head_dim = 0;
  size_t group = 1;                    // query heads per KV head
  float score_scale = 1.0f;            // of query times key
  Mat<float> old_keys, new_keys;       // [changes, kv_heads * head_dim]
  Mat<float> old_values, new_values;   // [changes, num_heads * kSketchWidth], sketches
  std::vector<uint8_t> was_seen = {};  // [changes], 0: no query saw the old key

  size_t size() const { return was_seen.size(); }
};

// What is known of a query's attention.
struct FollowedOutput {
  const float* query;  // [num_heads * head_dim]
  float* log_sums;     // [num_heads], log of the sum of exp(score)
  float* sketch;       // [num_heads * kSketchWidth]
  // Not if a head reads little but what changed. The rest is then worth nothing.
  bool is_trusted = true;
};

// Outputs that read a changed key together: pass as many at a time, or a multiple.
inline constexpr size_t kFollowedTogether = 4;

// Brings the outputs up to date.
void Follow(const KeyChanges& changes, std::span<FollowedOutput> outputs);

}  // namespace spa
