#include "kernels/attention.h"

#include <cmath>

#include "kernels/reference.h"
#include "tests/kernels/target_test.h"

namespace spa {
namespace {

constexpr KvType kKvTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16};

struct Sequence {
  Mat<float> k, v;  // what the cache holds, after rounding to its type
  KvCache kv;
};

Sequence MakeSequence(size_t num_keys, size_t num_kv_heads, size_t head_dim, KvType type,
                      ThreadPool& pool, uint32_t seed) {
  const size_t cols = num_kv_heads * head_dim;
  Sequence s{RandomMat(num_keys, cols, seed), RandomMat(num_keys, cols, seed + 1),
             KvCache(num_keys, num_kv_heads, head_dim, type)};
  s.kv.StoreKeys(AllRows(num_keys), s.k.View(), pool);
  s.kv.StoreValues(AllRows(num_keys), s.v.View(), pool);
  for (size_t row = 0; row < num_keys; ++row) {
    s.kv.LoadKey(row, s.k.Row(row));
    s.kv.LoadValue(row, s.v.Row(row));
  }
  return s;
}

Mat<float> Attention(const Mat<float>& q, const KvCache& kv, size_t num_heads, ThreadPool& pool) {
  Mat<float> out(q.rows(), q.cols());
  const AttentionJob job{.q = q.View(), .kv = &kv, .out = out.View()};
  Attend({&job, 1}, num_heads, pool);
  return out;
}

void ExpectNear(const Mat<float>& a, const Mat<float>& b, float tolerance, const char* what) {
  for (size_t i = 0; i < a.rows() * a.cols(); ++i) {
    ASSERT_NEAR(a.data()[i], b.data()[i], tolerance) << what << " at " << i;
  }
}

class AttentionTest : public TargetTest {};
SPA_FOR_EACH_TARGET(AttentionTest);

TEST_P(AttentionTest, MatchesReferenceOnOddShapes) {
  ThreadPool pool(2);
  struct Shape {
    size_t num_heads, num_kv_heads, head_dim, num_keys, num_rows;
  };
  const Shape shapes[] = {{1, 1, 8, 1, 1},     {2, 2, 32, 15, 3},   {4, 2, 48, 64, 7},
                          {7, 1, 64, 65, 9},   {4, 4, 40, 200, 50}, {6, 2, 128, 129, 17},
                          {3, 3, 24, 16, 100}, {2, 1, 16, 63, 6}};
  for (const Shape& s : shapes) {
    for (const KvType type : kKvTypes) {
      const Sequence sequence = MakeSequence(s.num_keys, s.num_kv_heads, s.head_dim, type, pool, 1);
      const Mat<float> q = RandomMat(s.num_rows, s.num_heads * s.head_dim, 3);
      Mat<float> out(s.num_rows, q.cols()), mean(s.num_rows, s.num_keys);
      const AttentionJob job{
          .q = q.View(), .kv = &sequence.kv, .out = out.View(), .mean_weights = mean.View()};
      Attend({&job, 1}, s.num_heads, pool);

      Mat<float> expected(s.num_rows, q.cols()), expected_mean(s.num_rows, s.num_keys);
      reference::Attend(q.View(), sequence.k.View(), sequence.v.View(), s.num_heads, s.head_dim,
                        expected.View(), expected_mean.View());
      ExpectNear(out, expected, 2e-6f, "output");
      ExpectNear(mean, expected_mean, 1e-6f, "mean weight");
    }
  }
}

TEST_P(AttentionTest, AQueryDoesNotDependOnTheOthersNorOnThreads) {
  ThreadPool one(1), two(2);
  for (const KvType type : kKvTypes) {
    const Sequence sequence = MakeSequence(150, 2, 32, type, two, 4);
    const Mat<float> q = RandomMat(61, 6 * 32, 5);
    const Mat<float> together = Attention(q, sequence.kv, 6, two);
    EXPECT_TRUE(SameBits(together.data(), Attention(q, sequence.kv, 6, one).data(), 61 * 192));
    for (const size_t row : {0, 7, 59, 60}) {
      Mat<float> single(1, q.cols());
      std::copy_n(q.Row(row), q.cols(), single.data());
      EXPECT_TRUE(
          SameBits(Attention(single, sequence.kv, 6, one).data(), together.Row(row), q.cols()))
          << "row " << row;
    }
  }
}

TEST_P(AttentionTest, JobsOfDifferentLengthsShareACall) {
  ThreadPool pool(2);
  const Sequence a = MakeSequence(33, 2, 16, KvType::kF32, pool, 6);
  const Sequence b = MakeSequence(100, 2, 16, KvType::kF16, pool, 8);
  const Mat<float> qa = RandomMat(5, 64, 10), qb = RandomMat(70, 64, 11);
  Mat<float> out_a(5, 64), out_b(70, 64);
  const AttentionJob jobs[] = {{.q = qa.View(), .kv = &a.kv, .out = out_a.View()},
                               {.q = qb.View(), .kv = &b.kv, .out = out_b.View()}};
  Attend(jobs, 4, pool);
  EXPECT_TRUE(SameBits(out_a.data(), Attention(qa, a.kv, 4, pool).data(), 5 * 64));
  EXPECT_TRUE(SameBits(out_b.data(), Attention(qb, b.kv, 4, pool).data(), 70 * 64));
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  ThreadPool pool(1);
  const Sequence sequence = MakeSequence(130, 1, 32, KvType::kF32, pool, 12);
  const Mat<float> q = RandomMat(4, 32, 14, 300.0f);
  Mat<float> expected(4, 32);
  reference::Attend(q.View(), sequence.k.View(), sequence.v.View(), 1, 32, expected.View(), {});
  ExpectNear(Attention(q, sequence.kv, 1, pool), expected, 2e-4f, "output");
}

TEST(Attention, NoQueriesIsNoWork) {
  ThreadPool pool(2);
  const Sequence sequence = MakeSequence(10, 1, 16, KvType::kF32, pool, 15);
  EXPECT_EQ(Attention(Mat<float>(0, 16), sequence.kv, 1, pool).rows(), 0u);
}

TEST(KvCache, KeepsRowsApart) {
  ThreadPool pool(2);
  for (const KvType type : kKvTypes) {
    KvCache kv(37, 2, 24, type);
    std::vector<float> row(48);
    kv.LoadKey(36, row.data());
    for (const float value : row) EXPECT_EQ(value, 0.0f);
    // Values that every type holds exactly.
    Mat<float> k(3, 48), v(3, 48);
    for (size_t i = 0; i < 3 * 48; ++i) {
      k.data()[i] = static_cast<float>(i);
      v.data()[i] = -static_cast<float>(i);
    }
    const std::vector<uint32_t> rows = {36, 0, 17};
    kv.StoreKeys(rows, k.View(), pool);
    kv.StoreValues(rows, v.View(), pool);
    for (size_t i = 0; i < 3; ++i) {
      kv.LoadKey(rows[i], row.data());
      EXPECT_TRUE(SameBits(row.data(), k.Row(i), 48));
      kv.LoadValue(rows[i], row.data());
      EXPECT_TRUE(SameBits(row.data(), v.Row(i), 48));
    }
    kv.LoadValue(16, row.data());
    for (const float value : row) EXPECT_EQ(value, 0.0f);
  }
}

TEST(KvCache, HalvesTakeHalfTheMemory) {
  EXPECT_EQ(KvCache(64, 2, 32, KvType::kF32).bytes(), 2 * 64 * 64 * sizeof(float));
  EXPECT_EQ(KvCache(64, 2, 32, KvType::kF16).bytes(), 64 * 64 * sizeof(float));
}

}  // namespace
}  // namespace spa
