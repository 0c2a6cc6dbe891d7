#include "kernels/rows.h"

#include <cmath>

#include "kernels/reference.h"
#include "tests/kernels/target_test.h"

namespace spa {
namespace {

class RowsTest : public TargetTest {};
SPA_FOR_EACH_TARGET(RowsTest);

TEST_P(RowsTest, CosineMatchesReference) {
  ThreadPool pool(2);
  for (const size_t n : {1, 3, 32, 100, 519}) {
    const Mat<float> a = RandomMat(70, n, 1), b = RandomMat(90, n, 2);
    std::vector<uint32_t> rows(70);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint32_t>(89 - i);
    std::vector<float> out(70), expected(70);
    CosineRows(a.View(), b.View(), rows, out, pool);
    reference::CosineRows(a.View(), b.View(), rows, expected);
    for (size_t i = 0; i < 70; ++i) ASSERT_NEAR(out[i], expected[i], 1e-7f);

    ThreadPool one(1);
    float alone = 0.0f;
    CosineRows(a.View().Rows(33, 1), b.View(), {&rows[33], 1}, {&alone, 1}, one);
    EXPECT_TRUE(SameBits(&alone, &out[33], 1));
  }
}

TEST_P(RowsTest, CosineWithZeroIsZero) {
  ThreadPool pool(1);
  Mat<float> a(1, 20), b = RandomMat(1, 20, 3);
  a.Fill(0.0f);
  float out = 1.0f;
  CosineRows(a.View(), b.View(), AllRows(1), {&out, 1}, pool);
  EXPECT_EQ(out, 0.0f);
}

TEST_P(RowsTest, AddsRows) {
  ThreadPool pool(2);
  for (const size_t n : {1, 7, 64, 300}) {
    const Mat<float> src = RandomMat(40, n, 4), before = RandomMat(40, n, 5);
    Mat<float> all = RandomMat(40, n, 5);
    AddRows(src.View(), all.View(), pool);
    for (size_t r = 0; r < 40; ++r) {
      for (size_t c = 0; c < n; ++c) EXPECT_EQ(all.Row(r)[c], before.Row(r)[c] + src.Row(r)[c]);
    }
  }
}

TEST(Rows, GatherThenScatterRestores) {
  ThreadPool pool(2);
  const Mat<float> src = RandomMat(50, 200, 6);
  const std::vector<uint32_t> rows = {49, 0, 25};
  Mat<float> some(3, 200), back(50, 200);
  back.Fill(0.0f);
  GatherRows(src.View(), rows, some.View(), pool);
  ScatterRows(some.View(), rows, back.View(), pool);
  for (const uint32_t row : rows) EXPECT_TRUE(SameBits(back.Row(row), src.Row(row), 200));
  EXPECT_EQ(back.Row(1)[0], 0.0f);
}

TEST(Rows, SmallestKMatchesReference) {
  std::mt19937 random(7);
  for (const size_t n : {0, 1, 10, 300}) {
    std::vector<float> values(n);
    for (float& v : values) v = static_cast<float>(random() % 20);  // many ties
    for (const size_t k : {size_t{0}, size_t{1}, n / 3, n, n + 5}) {
      EXPECT_EQ(SmallestK(values, k), reference::SmallestK(values, k)) << n << " " << k;
    }
  }
}

TEST(Rows, SmallestKTakesNanFirstAndTheLowerIndexOfTies) {
  const std::vector<float> values = {2.0f, 1.0f, 1.0f, NAN, 1.0f};
  EXPECT_EQ(SmallestK(values, 1), (std::vector<uint32_t>{3}));
  EXPECT_EQ(SmallestK(values, 3), (std::vector<uint32_t>{1, 2, 3}));
}

TEST(Rows, NoRowsIsNoWork) {
  ThreadPool pool(2);
  Mat<float> x(3, 16), none(0, 16);
  GatherRows(x.View(), {}, none.View(), pool);
  ScatterRows(none.View(), {}, x.View(), pool);
  AddRows(none.View(), none.View(), pool);
  CosineRows(none.View(), x.View(), {}, {}, pool);
}

}  // namespace
}  // namespace spa
