#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/reference.h"
#include "tests/kernels/target_test.h"

namespace spa {
namespace {

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
    for (const KvType type : kAllKvTypes) {
      const Sequence sequence = MakeSequence(s.num_keys, s.num_kv_heads, s.head_dim, type, pool, 1);
      const Mat<float> q = RandomMat(s.num_rows, s.num_heads * s.head_dim, 3);
      Mat<float> out(s.num_rows, q.cols()), mean(s.num_rows, s.num_keys);
      const AttentionJob job{
          .q = q.View(), .kv = &sequence.kv, .out = out.View(), .mean_weights = mean.View()};
      Attend({&job, 1}, s.num_heads, pool);

      Mat<float> expected(s.num_rows, q.cols()), expected_mean(s.num_rows, s.num_keys);
      reference::Attend(
          {.q = q.View(), .out = expected.View(), .mean_weights = expected_mean.View()},
          sequence.k.View(), sequence.v.View(), s.num_heads, s.head_dim);
      ExpectNear(out, expected, 2e-6f, "output");
      ExpectNear(mean, expected_mean, 1e-6f, "mean weight");
    }
  }
}

TEST_P(AttentionTest, AQueryDoesNotDependOnTheOthersNorOnThreads) {
  ThreadPool one(1), two(2);
  for (const KvType type : kAllKvTypes) {
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
  const Sequence b = MakeSequence(100, 2, 16, KvType::kF16Q8, pool, 8);
  const Mat<float> qa = RandomMat(5, 64, 10), qb = RandomMat(70, 64, 11);
  Mat<float> out_a(5, 64), out_b(70, 64);
  const AttentionJob jobs[] = {{.q = qa.View(), .kv = &a.kv, .out = out_a.View()},
                               {.q = qb.View(), .kv = &b.kv, .out = out_b.View()}};
  Attend(jobs, 4, pool);
  EXPECT_TRUE(SameBits(out_a.data(), Attention(qa, a.kv, 4, pool).data(), 5 * 64));
  EXPECT_TRUE(SameBits(out_b.data(), Attention(qb, b.kv, 4, pool).data(), 70 * 64));
}

// Which keys the rows of a job see. Spans are set where there is a pattern.
struct Pattern {
  const char* name;
  std::vector<uint32_t> begin = {}, end = {};
  std::vector<uint8_t> hidden = {};

  void Set(AttentionJob& job) const {
    job.key_begin = begin;
    job.key_end = end;
    job.hidden = hidden;
  }
  bool Sees(size_t row, size_t key) const {
    return (begin.empty() || key >= begin[row]) && (end.empty() || key < end[row]) &&
           (hidden.empty() || hidden[key] == 0);
  }
};

// Row i of n stands at position i * num_keys / n.
std::vector<Pattern> Patterns(size_t num_rows, size_t num_keys) {
  std::vector<Pattern> patterns = {{"causal"}, {"blocks"}, {"window"}, {"hidden"}, {"all of it"}};
  std::mt19937 random(1);
  for (size_t i = 0; i < num_rows; ++i) {
    const auto position = static_cast<uint32_t>(i * num_keys / num_rows);
    const uint32_t before = position < 20 ? 0 : position - 20;
    const auto block_end =
        static_cast<uint32_t>(std::min<size_t>(num_keys, (position / 32 + 1) * 32));
    patterns[0].end.push_back(position + 1);
    patterns[1].end.push_back(block_end);
    patterns[2].begin.push_back(before);
    patterns[2].end.push_back(position + 1);
    patterns[4].begin.push_back(random() % (position + 1));
    patterns[4].end.push_back(block_end);
  }
  for (size_t key = 0; key < num_keys; ++key) {
    // A whole block and more, then one key of 5.
    patterns[3].hidden.push_back(key + 1 < num_keys && (key / 70 == 1 || key % 5 == 3));
    patterns[4].hidden.push_back(random() % 3 == 0);
  }
  patterns[4].end[0] = 0;  // this row sees nothing
  return patterns;
}

TEST_P(AttentionTest, SeesWhatItIsShownOnly) {
  ThreadPool pool(2);
  struct Shape {
    size_t num_heads, num_kv_heads, head_dim, num_keys, num_rows;
  };
  for (const Shape& s : {Shape{2, 2, 32, 15, 3},
                         {4, 2, 48, 64, 7},
                         {7, 1, 64, 197, 23},
                         {6, 2, 40, 300, 150},
                         {1, 1, 16, 70, 70}}) {
    for (const KvType type : kAllKvTypes) {
      for (const float score_scale : {0.0f, 0.3f}) {
        const Sequence sequence =
            MakeSequence(s.num_keys, s.num_kv_heads, s.head_dim, type, pool, 1);
        const Mat<float> q = RandomMat(s.num_rows, s.num_heads * s.head_dim, 3);
        for (const Pattern& pattern : Patterns(s.num_rows, s.num_keys)) {
          SCOPED_TRACE(pattern.name);
          Mat<float> out(s.num_rows, q.cols()), mean(s.num_rows, s.num_keys);
          AttentionJob job{.q = q.View(),
                           .kv = &sequence.kv,
                           .out = out.View(),
                           .mean_weights = mean.View(),
                           .score_scale = score_scale};
          pattern.Set(job);
          Attend({&job, 1}, s.num_heads, pool);

          Mat<float> expected(s.num_rows, q.cols()), expected_mean(s.num_rows, s.num_keys);
          job.out = expected.View();
          job.mean_weights = expected_mean.View();
          reference::Attend(job, sequence.k.View(), sequence.v.View(), s.num_heads, s.head_dim);
          ExpectNear(out, expected, 3e-6f, "output");
          ExpectNear(mean, expected_mean, 1e-6f, "mean weight");
          for (size_t i = 0; i < s.num_rows; ++i) {
            for (size_t key = 0; key < s.num_keys; ++key) {
              ASSERT_TRUE(pattern.Sees(i, key) || mean.Row(i)[key] == 0.0f);
            }
          }
        }
      }
    }
  }
}

// Rows that a query does not see hold NaN, whether or not the queries beside it see them.
TEST_P(AttentionTest, UnseenRowsMayHoldAnything) {
  ThreadPool one(1), two(2);
  const size_t num_heads = 4, num_kv_heads = 2, head_dim = 32, num_keys = 197, num_rows = 23;
  const size_t cols = num_kv_heads * head_dim;
  const Mat<float> q = RandomMat(num_rows, num_heads * head_dim, 16);
  Mat<float> nan(num_keys, cols);
  nan.Fill(std::numeric_limits<float>::quiet_NaN());
  for (const KvType type : kAllKvTypes) {
    for (const Pattern& pattern : Patterns(num_rows, num_keys)) {
      const Sequence sequence = MakeSequence(num_keys, num_kv_heads, head_dim, type, two, 17);
      Mat<float> together(num_rows, q.cols()), mean(num_rows, num_keys);
      AttentionJob job{
          .q = q.View(), .kv = &sequence.kv, .out = together.View(), .mean_weights = mean.View()};
      pattern.Set(job);
      Attend({&job, 1}, num_heads, two);
      for (size_t row = 0; row < num_rows; ++row) {
        Sequence poisoned = MakeSequence(num_keys, num_kv_heads, head_dim, type, two, 17);
        std::vector<uint32_t> unseen;
        for (uint32_t key = 0; key < num_keys; ++key) {
          if (!pattern.Sees(row, key)) unseen.push_back(key);
        }
        poisoned.kv.StoreKeys(unseen, nan.View().Rows(0, unseen.size()), one);
        poisoned.kv.StoreValues(unseen, nan.View().Rows(0, unseen.size()), one);
        Mat<float> out(num_rows, q.cols()), weights(num_rows, num_keys);
        AttentionJob beside = job;
        beside.kv = &poisoned.kv;
        beside.out = out.View();
        beside.mean_weights = weights.View();
        Attend({&beside, 1}, num_heads, one);
        EXPECT_TRUE(SameBits(out.Row(row), together.Row(row), q.cols()))
            << pattern.name << ", row " << row;
        EXPECT_TRUE(SameBits(weights.Row(row), mean.Row(row), num_keys))
            << pattern.name << ", row " << row;
      }
    }
  }
}

TEST_P(AttentionTest, KeysPastTheEndAreAsIfThereWereNone) {
  ThreadPool pool(2);
  for (const KvType type : kAllKvTypes) {
    for (const size_t end : {1, 16, 50, 64, 130}) {
      const Sequence sequence = MakeSequence(150, 2, 32, type, pool, 18);
      KvCache prefix(end, 2, 32, type);
      prefix.CopyRows(sequence.kv, end, pool);
      const Mat<float> q = RandomMat(9, 4 * 32, 19);
      Mat<float> out(9, q.cols());
      const std::vector<uint32_t> ends(9, static_cast<uint32_t>(end));
      const AttentionJob job{.q = q.View(), .kv = &sequence.kv, .out = out.View(), .key_end = ends};
      Attend({&job, 1}, 4, pool);
      EXPECT_TRUE(SameBits(out.data(), Attention(q, prefix, 4, pool).data(), 9 * q.cols()));
    }
  }
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  ThreadPool pool(1);
  const Sequence sequence = MakeSequence(130, 1, 32, KvType::kF32, pool, 12);
  const Mat<float> q = RandomMat(4, 32, 14, 300.0f);
  Mat<float> expected(4, 32);
  reference::Attend({.q = q.View(), .out = expected.View()}, sequence.k.View(), sequence.v.View(),
                    1, 32);
  ExpectNear(Attention(q, sequence.kv, 1, pool), expected, 2e-4f, "output");
}

// One dimension, a query of 1: scores are the keys. Key 0 is the largest, and the others' weights
// are shares of its own.
TEST_P(AttentionTest, WeightsAreExponentialsDownToTheLeast) {
  ThreadPool pool(1);
  constexpr size_t kKeys = 3000;
  constexpr float kStep = 0.0213f;  // down to -64
  KvCache kv(kKeys, 1, 1, KvType::kF32);
  Mat<float> keys(kKeys, 1), values(kKeys, 1), q(1, 1), mean(1, kKeys);
  q.data()[0] = 1.0f;
  for (size_t i = 0; i < kKeys; ++i) keys.data()[i] = 7.0f - kStep * static_cast<float>(i);
  kv.StoreKeys(AllRows(kKeys), keys.View(), pool);
  kv.StoreValues(AllRows(kKeys), values.View(), pool);
  Mat<float> out(1, 1);
  const AttentionJob job{.q = q.View(), .kv = &kv, .out = out.View(), .mean_weights = mean.View()};
  Attend({&job, 1}, 1, pool);
  const float* weights = mean.Row(0);
  for (size_t i = 1; i < kKeys; ++i) {
    const float score = keys.data()[i] - keys.data()[0];
    const double expected = score < -60.0f ? 0.0 : std::exp(double{score});
    ASSERT_NEAR(double{weights[i]} / double{weights[0]}, expected, 4e-7 * expected) << score;
  }
}

TEST(Attention, NoQueriesIsNoWork) {
  ThreadPool pool(2);
  const Sequence sequence = MakeSequence(10, 1, 16, KvType::kF32, pool, 15);
  EXPECT_EQ(Attention(Mat<float>(0, 16), sequence.kv, 1, pool).rows(), 0u);
}

TEST(KvCache, KeepsRowsApart) {
  ThreadPool pool(2);
  for (const KvType type : kAllKvTypes) {
    KvCache kv(37, 2, 24, type);
    std::vector<float> row(48);
    kv.LoadKey(36, row.data());
    for (const float value : row) EXPECT_EQ(value, 0.0f);
    // Values that every type holds exactly: bytes too, as the largest of each head is 127.
    Mat<float> k(3, 48), v(3, 48);
    for (size_t i = 0; i < 3 * 48; ++i) {
      k.data()[i] = static_cast<float>(i);
      v.data()[i] = i % 24 == 0 ? 127.0f : 30.0f - static_cast<float>(i);
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
  // Two bytes, one byte, and a scale for each row and head.
  EXPECT_EQ(KvCache(64, 2, 32, KvType::kF16Q8).bytes(), 64 * 64 * 3 + 64 * 2 * sizeof(float));
}

class ByteValuesTest : public TargetTest {};
SPA_FOR_EACH_TARGET(ByteValuesTest);

TEST_P(ByteValuesTest, AreRoundedForEachRowAndHead) {
  ThreadPool pool(2);
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const size_t head_dim : {1, 7, 24, 128}) {
    Mat<float> v = RandomMat(20, 2 * head_dim, 1), expected(20, 2 * head_dim);
    for (size_t i = 0; i < head_dim; ++i) {
      v.Row(0)[i] = 0.0f;                               // a head of zeros
      v.Row(1)[i] *= 1e-38f;                            // too small for a scale
      v.Row(2)[i] *= 1e-20f;                            // one head small, the other not
      v.Row(3)[i] = static_cast<float>(i % 16) + 0.5f;  // ties, where the scale is 1
    }
    v.Row(3)[head_dim - 1] = -127.0f;
    v.Row(4)[head_dim / 2] = infinity;
    v.Row(5)[head_dim / 2] = -infinity;
    v.Row(6)[head_dim / 2] = 1e6f;
    v.Row(7)[0] = nan;
    v.Row(8)[2 * head_dim - 1] = -nan;
    v.Row(8)[head_dim] = infinity;
    reference::RoundValues(v.View(), head_dim, expected.View());
    KvCache kv(20, 2, head_dim, KvType::kF16Q8);
    kv.StoreValues(AllRows(20), v.View(), pool);
    std::vector<float> row(2 * head_dim);
    for (size_t i = 0; i < 20; ++i) {
      kv.LoadValue(i, row.data());
      for (size_t c = 0; c < 2 * head_dim; ++c) {
        const bool both_nan = std::isnan(row[c]) && std::isnan(expected.Row(i)[c]);
        EXPECT_TRUE(both_nan || row[c] == expected.Row(i)[c]) << "row " << i << ", " << c;
        if (i >= 9) {
          const float scale = std::abs(*std::max_element(  // of the head
              v.Row(i) + c / head_dim * head_dim, v.Row(i) + (c / head_dim + 1) * head_dim,
              [](float a, float b) { return std::abs(a) < std::abs(b); }));
          EXPECT_LE(std::abs(row[c] - v.Row(i)[c]), scale / 127.0f * 0.5001f);
        }
      }
    }
    for (const float value : {row[0], row[head_dim]}) EXPECT_TRUE(std::isfinite(value));
    kv.LoadValue(7, row.data());
    EXPECT_TRUE(std::isnan(row[0]) && std::isnan(row[head_dim - 1]) && !std::isnan(row[head_dim]));
    kv.LoadValue(4, row.data());
    EXPECT_NEAR(row[head_dim / 2], 65504.0f, 0.01f);
  }
}

TEST(KvCache, CopiesRowsBitForBitAndNoOthers) {
  ThreadPool pool(2);
  for (const KvType type : kAllKvTypes) {
    for (const size_t count : {1u, 16u, 63u, 64u, 77u, 96u}) {
      const Sequence from = MakeSequence(96, 2, 40, type, pool, 1);
      for (const size_t room : {count, size_t{200}}) {
        Sequence to = MakeSequence(room, 2, 40, type, pool, 9);
        to.kv.CopyRows(from.kv, count, pool);
        Mat<float> row(1, 80);
        for (size_t i = 0; i < room; ++i) {
          to.kv.LoadKey(i, row.data());
          ASSERT_EQ(std::memcmp(row.data(), (i < count ? from : to).k.Row(i), 80 * 4), 0) << i;
          to.kv.LoadValue(i, row.data());
          ASSERT_EQ(std::memcmp(row.data(), (i < count ? from : to).v.Row(i), 80 * 4), 0) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace spa
