#include "kernels/attention_sketch.h"

#include <cmath>

#include "kernels/attention.h"
#include "tests/kernels/target_test.h"

namespace spa {
namespace {

class AttentionSketchTest : public TargetTest {};
SPA_FOR_EACH_TARGET(AttentionSketchTest);

struct Outputs {
  Mat<float> log_sums, sketches;  // of each query
};

// Attention of all queries to the keys that are not hidden.
Outputs AttendAll(const Mat<float>& q, const KvCache& kv, size_t num_heads,
                  std::span<const uint8_t> hidden, const std::vector<float>& signs,
                  ThreadPool& pool) {
  Mat<float> out(q.rows(), q.cols());
  Outputs outputs{Mat<float>(q.rows(), num_heads), Mat<float>(q.rows(), num_heads * kSketchWidth)};
  const AttentionJob job{.q = q.View(),
                         .kv = &kv,
                         .out = out.View(),
                         .log_sums = outputs.log_sums.View(),
                         .hidden = hidden};
  Attend({&job, 1}, num_heads, pool);
  for (size_t i = 0; i < q.rows(); ++i) {
    SketchHeads(out.Row(i), num_heads, q.cols() / num_heads, 1, signs.data(),
                outputs.sketches.Row(i));
  }
  return outputs;
}

TEST_P(AttentionSketchTest, FollowsKeysThatChangeAndKeysThatAppear) {
  struct Shape {
    size_t num_heads, num_kv_heads, head_dim, num_keys;
    KvType type;
  };
  ThreadPool pool(1);
  for (const Shape& s : {Shape{4, 4, 32, 90, KvType::kF16},
                         {4, 4, 32, 90, KvType::kF16Q8},
                         {6, 2, 20, 40, KvType::kF16Q8},
                         {9, 3, 12, 64, KvType::kF16}}) {
    const size_t kv_dim = s.num_kv_heads * s.head_dim, group = s.num_heads / s.num_kv_heads;
    KvCache kv(s.num_keys, s.num_kv_heads, s.head_dim, s.type);
    kv.StoreKeys(AllRows(s.num_keys), RandomMat(s.num_keys, kv_dim, 1).View(), pool);
    kv.StoreValues(AllRows(s.num_keys), RandomMat(s.num_keys, kv_dim, 2).View(), pool);
    const Mat<float> q = RandomMat(5, s.num_heads * s.head_dim, 3);
    const std::vector<float> signs = SketchSigns(q.cols());

    const std::vector<uint32_t> changed = {2, 7, 33};  // 33 appears
    std::vector<uint8_t> hidden(s.num_keys, 0);
    hidden[33] = 1;
    Outputs before = AttendAll(q, kv, s.num_heads, hidden, signs, pool);
    KeyChanges changes{.num_heads = s.num_heads,
                       .head_dim = s.head_dim,
                       .group = group,
                       .score_scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim)),
                       .old_keys = Mat<float>(3, kv_dim),
                       .new_keys = Mat<float>(3, kv_dim),
                       .old_values = Mat<float>(3, s.num_heads * kSketchWidth),
                       .new_values = Mat<float>(3, s.num_heads * kSketchWidth),
                       .was_seen = {1, 1, 0}};
    const auto load = [&](Mat<float>& keys, Mat<float>& values) {
      std::vector<float> value(kv_dim);
      for (size_t i = 0; i < changed.size(); ++i) {
        kv.LoadKey(changed[i], keys.Row(i));
        kv.LoadValue(changed[i], value.data());
        SketchHeads(value.data(), s.num_heads, s.head_dim, group, signs.data(), values.Row(i));
      }
    };
    load(changes.old_keys, changes.old_values);
    kv.StoreKeys(changed, RandomMat(3, kv_dim, 4).View(), pool);
    kv.StoreValues(changed, RandomMat(3, kv_dim, 5).View(), pool);
    load(changes.new_keys, changes.new_values);
    const Outputs after = AttendAll(q, kv, s.num_heads, {}, signs, pool);
    std::vector<FollowedOutput> outputs;
    for (size_t i = 0; i < q.rows(); ++i) {
      outputs.push_back({q.Row(i), before.log_sums.Row(i), before.sketches.Row(i)});
    }
    Follow(changes, outputs);
    for (size_t i = 0; i < q.rows(); ++i) {
      ASSERT_TRUE(outputs[i].is_trusted);
      for (size_t h = 0; h < s.num_heads; ++h) {
        EXPECT_NEAR(before.log_sums.Row(i)[h], after.log_sums.Row(i)[h], 1e-5);
      }
      for (size_t c = 0; c < after.sketches.cols(); ++c) {
        EXPECT_NEAR(before.sketches.Row(i)[c], after.sketches.Row(i)[c], 2e-5) << c;
      }
    }
  }
}

// What remains of such a head's output is all rounding.
TEST_P(AttentionSketchTest, GivesUpOnAHeadThatReadsOnlyWhatChanged) {
  constexpr size_t kDim = 8;
  std::vector<float> query(kDim, 4.0f), log_sums = {40.0f}, sketch(kSketchWidth, 1.0f);
  KeyChanges changes{.num_heads = 1,
                     .head_dim = kDim,
                     .old_keys = Mat<float>(1, kDim),
                     .new_keys = Mat<float>(1, kDim),
                     .old_values = Mat<float>(1, kSketchWidth),
                     .new_values = Mat<float>(1, kSketchWidth),
                     .was_seen = {1}};
  for (size_t i = 0; i < kDim; ++i) {
    changes.old_keys.Row(0)[i] = 40.0f / (4.0f * kDim);  // its score is all of the sum
    changes.new_keys.Row(0)[i] = 0.0f;
    changes.old_values.Row(0)[i] = changes.new_values.Row(0)[i] = 1.0f;
  }
  FollowedOutput output{query.data(), log_sums.data(), sketch.data()};
  Follow(changes, {&output, 1});
  EXPECT_FALSE(output.is_trusted);
}

TEST(AttentionSketch, KeepsLengthsOnAverage) {
  constexpr size_t kHeads = 32, kDim = 128;
  const std::vector<float> signs = SketchSigns(kHeads * kDim);
  const Mat<float> rows = RandomMat(64, kHeads * kDim, 6);
  double ratio = 0.0;
  for (size_t i = 0; i < rows.rows(); ++i) {
    std::vector<float> sketch(kHeads * kSketchWidth);
    SketchHeads(rows.Row(i), kHeads, kDim, 1, signs.data(), sketch.data());
    double whole = 0.0, sketched = 0.0;
    for (size_t c = 0; c < rows.cols(); ++c) whole += std::pow(rows.Row(i)[c], 2.0);
    for (const float x : sketch) sketched += std::pow(x, 2.0);
    ratio += sketched / whole / static_cast<double>(rows.rows());
  }
  EXPECT_NEAR(ratio, 1.0, 0.05);
}

}  // namespace
}  // namespace spa
