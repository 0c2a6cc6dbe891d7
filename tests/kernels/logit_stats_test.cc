#include "kernels/logit_stats.h"

#include <cmath>

#include "kernels/reference.h"
#include "tests/kernels/target_test.h"

namespace spa {
namespace {

class LogitStatsTest : public TargetTest {};
SPA_FOR_EACH_TARGET(LogitStatsTest);

TEST_P(LogitStatsTest, MatchesReference) {
  for (const size_t n : {1, 2, 7, 16, 33, 1000, 126464}) {
    const Mat<float> logits = RandomMat(1, n, 1, 4.0f);
    const LogitStats stats = ComputeLogitStats({logits.data(), n});
    const LogitStats expected = reference::ComputeLogitStats({logits.data(), n});
    EXPECT_EQ(stats.argmax, expected.argmax);
    EXPECT_EQ(stats.max, expected.max);
    EXPECT_NEAR(stats.log_sum_exp, expected.log_sum_exp, 1e-6);
  }
}

TEST_P(LogitStatsTest, TheFirstOfEqualLogitsWins) {
  std::vector<float> logits(100, -1.0f);
  logits[41] = logits[42] = logits[99] = 5.0f;
  EXPECT_EQ(ComputeLogitStats(logits).argmax, 41u);
}

TEST_P(LogitStatsTest, ForbiddenTokensAreMinusInfinity) {
  std::vector<float> logits(37, -INFINITY);
  logits[20] = 3.0f;
  const LogitStats stats = ComputeLogitStats(logits);
  EXPECT_EQ(stats.argmax, 20u);
  EXPECT_DOUBLE_EQ(stats.log_sum_exp, 3.0);
}

TEST_P(LogitStatsTest, LargeLogitsDoNotOverflow) {
  std::vector<float> logits(50, 1e4f);
  EXPECT_NEAR(ComputeLogitStats(logits).log_sum_exp, 1e4 + std::log(50.0), 1e-6);
}

}  // namespace
}  // namespace spa
