#include "lab/race.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace spa {
namespace {

TEST(Race, CountsStepsAndAddsUp) {
  Engine engine({.model = {}, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
  const SharedCache cache = engine.PrepareCache({.name = "spa", .options = {}});
  const std::vector<size_t> rates = {1, 3, 8};
  for (const bool whole : {false, true}) {
    const auto results =
        MeasureRace(engine, cache, {.prompt = 20, .answer = 32, .block = 8, .whole = whole}, rates);
    ASSERT_EQ(results.size(), 3u);
    EXPECT_EQ(results[0].steps, 32u);
    EXPECT_EQ(results[1].steps, 12u);  // three steps for eight tokens
    EXPECT_EQ(results[2].steps, 4u);
    for (const RaceResult& result : results) {
      EXPECT_GT(result.first_step_seconds, 0.0);
      EXPECT_GE(result.first_block_seconds, result.first_step_seconds);
      EXPECT_GT(result.answer_seconds, result.first_block_seconds);
      EXPECT_GT(result.cache_bytes, 0u);
      EXPECT_EQ(result.last_block_seconds > 0.0, !whole);
    }
  }
}

TEST(Race, RefusesWhatItCannotCompute) {
  Engine engine({.model = {}, .threads = 1, .kv_type = KvType::kF32, .progress = {}});
  const std::vector<size_t> rates = {1};
  const SharedCache none = engine.PrepareCache({.name = "none", .options = {}});
  EXPECT_THROW(MeasureRace(engine, none, {.prompt = 8, .answer = 16, .block = 8}, rates), Error);
  EXPECT_THROW(MeasureRace(engine, none, {.prompt = 8, .answer = 16, .block = 7}, rates), Error);
}

}  // namespace
}  // namespace spa
