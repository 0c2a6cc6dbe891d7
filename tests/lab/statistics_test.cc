#include "lab/statistics.h"

#include <gtest/gtest.h>

namespace spa {
namespace {

// Values of R's binom.test(min, n)$p.value.
TEST(McNemar, EqualsTheExactBinomialTest) {
  EXPECT_NEAR((Pairs{.lost = 0, .won = 0}).p_value(), 1.0, 1e-12);
  EXPECT_NEAR((Pairs{.lost = 5, .won = 5}).p_value(), 1.0, 1e-9);
  EXPECT_NEAR((Pairs{.lost = 9, .won = 1}).p_value(), 0.021484375, 1e-9);
  EXPECT_NEAR((Pairs{.lost = 1, .won = 9}).p_value(), 0.021484375, 1e-9);
  EXPECT_NEAR((Pairs{.lost = 6, .won = 0}).p_value(), 0.03125, 1e-9);
  // The published questions of the audit: 95 lost, 66 won.
  EXPECT_NEAR((Pairs{.lost = 95, .won = 66}).p_value(), 0.027, 5e-4);
  EXPECT_GT((Pairs{.lost = 2000, .won = 2000}).p_value(), 0.98);
}

TEST(McNemar, CountsQuestionsThatOnlyOneWayAnswered) {
  std::vector<Sample> first(5), second(5);
  for (const size_t right : {0, 1, 4}) first[right].correct = true;
  for (const size_t right : {0, 2}) second[right].correct = true;
  const Pairs pairs = CountPairs(first, second);
  EXPECT_EQ(pairs.lost, 2u);
  EXPECT_EQ(pairs.won, 1u);
}

}  // namespace
}  // namespace spa
