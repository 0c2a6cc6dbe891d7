// The router against its definition, and the law that a row does not depend on the rows beside it.
#include "transformer/experts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace spa {
namespace {

Mat<float> RandomMatrix(size_t rows, size_t cols, uint64_t seed, double scale) {
  Mat<float> matrix(rows, cols);
  const RandomStream random(seed, 0, 0);
  for (size_t i = 0; i < rows * cols; ++i) {
    matrix.data()[i] = static_cast<float>(scale * (2.0 * random.Uniform(i) - 1.0));
  }
  return matrix;
}

PackedMatrix Pack(const Mat<float>& matrix, ThreadPool& pool) {
  return PackedMatrix({.dtype = DType::kF32,
                       .rows = matrix.rows(),
                       .cols = matrix.cols(),
                       .data = reinterpret_cast<const std::byte*>(matrix.data())},
                      pool);
}

Routing Choose(const ExpertConfig& config, const std::vector<float>& logits,
               const std::vector<float>& bias = {}) {
  ThreadPool pool(1);
  Mat<float> row(1, logits.size());
  std::ranges::copy(logits, row.data());
  return ChooseExperts(config, row.View(), bias, pool);
}

TEST(ChooseExperts, SoftmaxWeighsWithTheShareOfAllExperts) {
  const ExpertConfig config = {.count = 4, .used = 2, .dim = 8};
  const float a = std::log(1.0f), b = std::log(2.0f), c = std::log(4.0f), d = std::log(3.0f);
  Routing routing = Choose(config, {a, b, c, d});
  EXPECT_EQ(routing.experts, (std::vector<uint32_t>{2, 3}));
  EXPECT_NEAR(routing.weights[0], 0.4, 1e-6);
  EXPECT_NEAR(routing.weights[1], 0.3, 1e-6);
  ExpertConfig renormalised = config;
  renormalised.renormalise = true;
  routing = Choose(renormalised, {a, b, c, d});
  EXPECT_NEAR(routing.weights[0], 4.0 / 7.0, 1e-6);
  EXPECT_NEAR(routing.weights[1], 3.0 / 7.0, 1e-6);
}

TEST(ChooseExperts, TiesGoToTheLowerExpert) {
  const ExpertConfig config = {.count = 5, .used = 2, .dim = 8};
  EXPECT_EQ(Choose(config, {1, 3, 2, 2, 2}).experts, (std::vector<uint32_t>{1, 2}));
}

TEST(ChooseExperts, TheBiasRanksAndNeverWeighs) {
  const ExpertConfig config = {.count = 3,
                               .used = 1,
                               .dim = 8,
                               .router = RouterKind::kSigmoid,
                               .bias = true,
                               .renormalise = false,
                               .scale = 2.5};
  const Routing routing = Choose(config, {2, 0, 1}, {0.0f, 0.9f, 0.0f});
  EXPECT_EQ(routing.experts, (std::vector<uint32_t>{1}));
  EXPECT_NEAR(routing.weights[0], 0.5 * 2.5, 1e-6);
}

TEST(ChooseExperts, OnlyExpertsOfTheBestGroupsCompete) {
  // Two groups of three. The best expert is in the first, whose second best is poor.
  const ExpertConfig config = {.count = 6,
                               .used = 2,
                               .dim = 8,
                               .router = RouterKind::kSigmoid,
                               .groups = 2,
                               .groups_used = 1};
  EXPECT_EQ(Choose(config, {9, -9, -9, 2, -1, 1}).experts, (std::vector<uint32_t>{3, 5}));
}

class ExpertStepTest : public testing::Test {
 protected:
  static constexpr size_t kWidth = 32, kRows = 37;

  ExpertStepTest() {
    config_ = {.count = 8, .used = 3, .dim = 16, .shared_dim = 24, .renormalise = true};
    weights_.router = Pack(RandomMatrix(8, kWidth, 1, 0.5), pool_);
    for (size_t e = 0; e < config_.count; ++e) {
      gate_.push_back(RandomMatrix(16, kWidth, 10 + e, 0.3));
      up_.push_back(RandomMatrix(16, kWidth, 20 + e, 0.3));
      down_.push_back(RandomMatrix(kWidth, 16, 30 + e, 0.3));
      weights_.wgate.push_back(Pack(gate_.back(), pool_));
      weights_.wup.push_back(Pack(up_.back(), pool_));
      weights_.wdown.push_back(Pack(down_.back(), pool_));
    }
    shared_gate_ = RandomMatrix(24, kWidth, 40, 0.3);
    shared_up_ = RandomMatrix(24, kWidth, 41, 0.3);
    shared_down_ = RandomMatrix(kWidth, 24, 42, 0.3);
    weights_.shared_wgate = Pack(shared_gate_, pool_);
    weights_.shared_wup = Pack(shared_up_, pool_);
    weights_.shared_wdown = Pack(shared_down_, pool_);
  }

  static void AddSwiGlu(const Mat<float>& gate, const Mat<float>& up, const Mat<float>& down,
                        const float* x, double weight, std::vector<double>& y) {
    for (size_t i = 0; i < gate.rows(); ++i) {
      double g = 0.0, u = 0.0;
      for (size_t c = 0; c < kWidth; ++c) {
        g += static_cast<double>(gate.Row(i)[c]) * x[c];
        u += static_cast<double>(up.Row(i)[c]) * x[c];
      }
      const double h = g / (1.0 + std::exp(-g)) * u;
      for (size_t o = 0; o < kWidth; ++o) y[o] += weight * h * down.Row(o)[i];
    }
  }

  ThreadPool pool_{2};
  ExpertConfig config_;
  ExpertWeights weights_;
  std::vector<Mat<float>> gate_, up_, down_;
  Mat<float> shared_gate_, shared_up_, shared_down_;
};

TEST_F(ExpertStepTest, SumsTheChosenExpertsAndTheSharedOne) {
  const Mat<float> x = RandomMatrix(kRows, kWidth, 2, 1.0);
  const Mat<float> router = RandomMatrix(8, kWidth, 1, 0.5);
  Mat<float> y(kRows, kWidth), logits(kRows, 8);
  ExpertStep().Run(config_, weights_, x.View(), y.View(), pool_);
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t e = 0; e < 8; ++e) {
      double sum = 0.0;
      for (size_t c = 0; c < kWidth; ++c) {
        sum += static_cast<double>(router.Row(e)[c]) * x.Row(row)[c];
      }
      logits.Row(row)[e] = static_cast<float>(sum);
    }
  }
  const Routing routing = ChooseExperts(config_, logits.View(), {}, pool_);
  for (size_t row = 0; row < kRows; ++row) {
    std::vector<double> expected(kWidth, 0.0);
    for (size_t i = row * config_.used; i < (row + 1) * config_.used; ++i) {
      const uint32_t e = routing.experts[i];
      AddSwiGlu(gate_[e], up_[e], down_[e], x.Row(row), routing.weights[i], expected);
    }
    AddSwiGlu(shared_gate_, shared_up_, shared_down_, x.Row(row), 1.0, expected);
    for (size_t c = 0; c < kWidth; ++c) EXPECT_NEAR(y.Row(row)[c], expected[c], 1e-5);
  }
}

TEST_F(ExpertStepTest, ARowDoesNotDependOnTheRowsBesideIt) {
  const Mat<float> x = RandomMatrix(kRows, kWidth, 3, 1.0);
  Mat<float> all(kRows, kWidth), alone(1, kWidth);
  ExpertStep step;
  step.Run(config_, weights_, x.View(), all.View(), pool_);
  ThreadPool one(1);
  for (size_t row = 0; row < kRows; ++row) {
    step.Run(config_, weights_, x.View().Rows(row, 1), alone.View(), one);
    EXPECT_TRUE(std::equal(alone.Row(0), alone.Row(0) + kWidth, all.Row(row))) << row;
  }
}

}  // namespace
}  // namespace spa
