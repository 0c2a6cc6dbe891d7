#include "kernels/pointwise.h"

#include <cmath>

#include "kernels/reference.h"
#include "tests/kernels/target_test.h"

namespace spa {
namespace {

constexpr size_t kLengths[] = {1, 3, 8, 31, 32, 100, 519};

class PointwiseTest : public TargetTest {};
SPA_FOR_EACH_TARGET(PointwiseTest);

TEST_P(PointwiseTest, RmsNormMatchesReference) {
  ThreadPool pool(2);
  for (const size_t n : kLengths) {
    const Mat<float> x = RandomMat(40, n, 1, 3.0f), gain = RandomMat(1, n, 2);
    const std::vector<uint32_t> rows = {39, 0, 7, 7, 12};
    Mat<float> y(rows.size(), n), expected(rows.size(), n);
    RmsNorm(x.View(), rows, gain.data(), 1e-5f, y.View(), pool);
    reference::RmsNorm(x.View(), rows, gain.data(), 1e-5f, expected.View());
    for (size_t i = 0; i < rows.size() * n; ++i) {
      ASSERT_NEAR(y.data()[i], expected.data()[i], 2e-6f * (1 + std::abs(expected.data()[i])));
    }
  }
}

TEST_P(PointwiseTest, RmsNormOfHeadsMatchesReference) {
  ThreadPool pool(2);
  for (const size_t head_dim : kLengths) {
    const Mat<float> gain = RandomMat(1, head_dim, 2);
    for (const float* g : {gain.data(), static_cast<const float*>(nullptr)}) {
      Mat<float> x = RandomMat(40, 3 * head_dim, 1, 3.0f);
      Mat<float> expected = RandomMat(40, 3 * head_dim, 1, 3.0f);
      RmsNormHeads(x.View(), head_dim, g, 1e-5f, pool);
      reference::RmsNormHeads(expected.View(), head_dim, g, 1e-5f);
      for (size_t i = 0; i < 40 * 3 * head_dim; ++i) {
        ASSERT_NEAR(x.data()[i], expected.data()[i], 2e-6f * (1 + std::abs(expected.data()[i])));
      }
    }
  }
}

TEST_P(PointwiseTest, RmsNormOfOneHeadIsThatOfTheRow) {
  ThreadPool pool(1);
  Mat<float> x = RandomMat(3, 100, 9), normed(3, 100);
  const Mat<float> gain = RandomMat(1, 100, 10);
  RmsNorm(x.View(), AllRows(3), gain.data(), 1e-5f, normed.View(), pool);
  RmsNormHeads(x.View(), 100, gain.data(), 1e-5f, pool);
  EXPECT_TRUE(SameBits(x.data(), normed.data(), 300));
}

TEST_P(PointwiseTest, RopeMatchesReference) {
  ThreadPool pool(2);
  for (const size_t head_dim : {2, 8, 24, 48, 64, 128}) {
    const RopeTable table(50, head_dim, 10000.0);
    const std::vector<uint32_t> positions = {49, 0, 3, 21};
    Mat<float> x = RandomMat(4, 3 * head_dim, 3), expected = RandomMat(4, 3 * head_dim, 3);
    Rope(x.View(), positions, head_dim, table, pool);
    reference::Rope(expected.View(), positions, head_dim, table);
    for (size_t i = 0; i < 4 * 3 * head_dim; ++i) {
      ASSERT_NEAR(x.data()[i], expected.data()[i], 1e-6f);
    }
  }
}

TEST_P(PointwiseTest, RopeOfAPartMatchesReference) {
  ThreadPool pool(2);
  for (const auto& [rope_dim, head_dim] : {std::pair<size_t, size_t>{2, 8}, {6, 24}, {64, 128}}) {
    const RopeTable table(50, rope_dim, 10000.0);
    const std::vector<uint32_t> positions = {49, 0, 3, 21};
    const Mat<float> before = RandomMat(4, 3 * head_dim, 3);
    Mat<float> x = RandomMat(4, 3 * head_dim, 3), expected = RandomMat(4, 3 * head_dim, 3);
    Rope(x.View(), positions, head_dim, table, pool);
    reference::Rope(expected.View(), positions, head_dim, table);
    for (size_t i = 0; i < 4 * 3 * head_dim; ++i) {
      ASSERT_NEAR(x.data()[i], expected.data()[i], 1e-6f);
      ASSERT_TRUE(i % head_dim < rope_dim || x.data()[i] == before.data()[i]);
    }
  }
}

TEST_P(PointwiseTest, SwiGluMatchesReference) {
  ThreadPool pool(2);
  for (const size_t n : kLengths) {
    Mat<float> gate = RandomMat(5, n, 4, 5.0f), expected = RandomMat(5, n, 4, 5.0f);
    const Mat<float> up = RandomMat(5, n, 5);
    SwiGlu(gate.View(), up.View(), pool);
    reference::SwiGlu(expected.View(), up.View());
    for (size_t i = 0; i < 5 * n; ++i) {
      ASSERT_NEAR(gate.data()[i], expected.data()[i], 1e-6f * (1 + std::abs(expected.data()[i])));
    }
  }
}

TEST_P(PointwiseTest, GeGluMatchesReference) {
  ThreadPool pool(2);
  for (const size_t n : kLengths) {
    Mat<float> gate = RandomMat(5, n, 4, 3.0f), expected = RandomMat(5, n, 4, 3.0f);
    const Mat<float> up = RandomMat(5, n, 5);
    GeGlu(gate.View(), up.View(), pool);
    reference::GeGlu(expected.View(), up.View());
    for (size_t i = 0; i < 5 * n; ++i) {
      ASSERT_NEAR(gate.data()[i], expected.data()[i], 1e-6f * (1 + std::abs(expected.data()[i])));
    }
  }
}

TEST_P(PointwiseTest, GatesOfAnySizeAreFinite) {
  ThreadPool pool(1);
  Mat<float> gate(1, 19), up(1, 19);
  up.Fill(1.0f);
  for (const auto gated : {SwiGlu, GeGlu}) {
    for (const float value : {-1e4f, -200.0f, -89.0f, 89.0f, 1e4f}) {
      gate.Fill(value);
      gated(gate.View(), up.View(), pool);
      for (size_t i = 0; i < 19; ++i) EXPECT_NEAR(gate.data()[i], std::max(value, 0.0f), 1e-30f);
    }
  }
}

TEST_P(PointwiseTest, RowsDoNotDependOnTheBatchNorOnThreads) {
  ThreadPool one(1), two(2);
  const size_t n = 519, num_rows = 60;  // several tasks
  const Mat<float> x = RandomMat(num_rows, n, 6), gain = RandomMat(1, n, 7);
  Mat<float> all(num_rows, n), all_one(num_rows, n), single(1, n);
  RmsNorm(x.View(), AllRows(num_rows), gain.data(), 1e-5f, all.View(), two);
  RmsNorm(x.View(), AllRows(num_rows), gain.data(), 1e-5f, all_one.View(), one);
  EXPECT_TRUE(SameBits(all.data(), all_one.data(), num_rows * n));
  for (const uint32_t row : {0u, 17u, 59u}) {
    RmsNorm(x.View(), {&row, 1}, gain.data(), 1e-5f, single.View(), one);
    EXPECT_TRUE(SameBits(all.Row(row), single.data(), n));
  }
  Mat<float> gate = RandomMat(num_rows, n, 8);
  std::copy_n(gate.Row(17), n, single.data());
  SwiGlu(gate.View(), x.View(), two);
  SwiGlu(single.View(), x.View().Rows(17, 1), one);
  EXPECT_TRUE(SameBits(gate.Row(17), single.data(), n));
  GeGlu(gate.View(), x.View(), two);
  GeGlu(single.View(), x.View().Rows(17, 1), one);
  EXPECT_TRUE(SameBits(gate.Row(17), single.data(), n));
  RmsNormHeads(gate.View(), 173, gain.data(), 1e-5f, two);
  RmsNormHeads(single.View(), 173, gain.data(), 1e-5f, one);
  EXPECT_TRUE(SameBits(gate.Row(17), single.data(), n));
}

TEST(Pointwise, RopeAngleIsPositionTimesFrequency) {
  const RopeTable table(100, 8, 10000.0);
  for (size_t j = 0; j < 4; ++j) {
    const double angle = 99.0 * std::pow(10000.0, -static_cast<double>(j) / 4.0);
    EXPECT_FLOAT_EQ(table.Cos(99)[j], static_cast<float>(std::cos(angle)));
    EXPECT_FLOAT_EQ(table.Sin(99)[j], static_cast<float>(std::sin(angle)));
  }
}

TEST(Pointwise, RopeTurnsByTheFrequenciesItIsGiven) {
  const double frequencies[] = {0.5, 0.25, 0.0};
  const RopeTable table(100, frequencies);
  EXPECT_EQ(table.rope_dim(), 6u);
  for (size_t j = 0; j < 3; ++j) {
    EXPECT_FLOAT_EQ(table.Cos(99)[j], static_cast<float>(std::cos(99.0 * frequencies[j])));
    EXPECT_FLOAT_EQ(table.Sin(99)[j], static_cast<float>(std::sin(99.0 * frequencies[j])));
  }
}

TEST(Pointwise, NoRowsIsNoWork) {
  ThreadPool pool(2);
  Mat<float> x(3, 16), none(0, 16);
  const float gain[16] = {};
  RmsNorm(x.View(), {}, gain, 1e-5f, none.View(), pool);
  SwiGlu(none.View(), none.View(), pool);
  GeGlu(none.View(), none.View(), pool);
  RmsNormHeads(none.View(), 8, gain, 1e-5f, pool);
  Rope(none.View(), {}, 8, RopeTable(1, 8, 10000.0), pool);
}

}  // namespace
}  // namespace spa
