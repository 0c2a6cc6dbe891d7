// Tests that run once for every SIMD target this build and this processor have, and what they
// share.
#pragma once

#include <gtest/gtest.h>

#include "kernels/targets.h"
// After targets.h, which chooses what Highway compiles for.
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/matrix.h"

namespace spa {

class TargetTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

#define SPA_FOR_EACH_TARGET(suite)                                                                 \
  INSTANTIATE_TEST_SUITE_P(Targets, suite, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()), \
                           [](const testing::TestParamInfo<int64_t>& target) {                     \
                             return std::string(hwy::TargetName(target.param));                    \
                           })

inline Mat<float> RandomMat(size_t rows, size_t cols, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  Mat<float> mat(rows, cols);
  for (size_t i = 0; i < rows * cols; ++i) mat.data()[i] = normal(random);
  return mat;
}

inline std::vector<uint32_t> AllRows(size_t n) {
  std::vector<uint32_t> rows(n);
  std::iota(rows.begin(), rows.end(), 0u);
  return rows;
}

// Same bits, NaN included.
inline bool SameBits(const float* a, const float* b, size_t n) {
  return n == 0 || std::memcmp(a, b, n * sizeof(float)) == 0;
}

}  // namespace spa
