// Schedules, commit rules and the token sampler against their published definitions.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "decode/commit_rule.h"
#include "decode/decoder.h"
#include "decode/schedule.h"
#include "decode/token_sampler.h"

namespace spa::rules_test {
namespace {

std::vector<Candidate> WithProbabilities(const std::vector<double>& probabilities) {
  std::vector<Candidate> candidates;
  for (const double p : probabilities) candidates.push_back({.probability = p, .score = p});
  return candidates;
}

using Indices = std::vector<size_t>;

TEST(Schedule, EvenSplitGivesTheRemainderToTheFirstSteps) {
  Indices counts;
  for (size_t step = 0; step < 4; ++step) counts.push_back(EvenSplitCount(10, 4, step));
  EXPECT_EQ(counts, (Indices{3, 3, 2, 2}));
}

// Transfers per step of Dream's time grid, as Hugging Face's and llama.cpp's formulas give them.
Indices Transfers(size_t tokens, size_t steps) {
  const auto grid = TimeGrid(steps, 1e-3);
  Indices counts;
  size_t masked = tokens;
  for (size_t step = 0; step < steps; ++step) {
    counts.push_back(TimeGridCount(grid, masked, step));
    masked -= counts.back();
  }
  return counts;
}

TEST(Schedule, TimeGridMatchesTheReferenceCounts) {
  for (const size_t n : {8, 32, 64, 128, 256, 512}) {
    Indices expected(n, 1);
    expected.front() = 0;
    expected.back() = 2;
    EXPECT_EQ(Transfers(n, n), expected) << n;
  }
  for (const size_t steps : {64, 128, 256}) {
    Indices expected(steps, 2);
    expected.front() = 1;
    expected.back() = 3;
    EXPECT_EQ(Transfers(2 * steps, steps), expected) << steps;
  }
  for (const size_t n : {64, 128}) {
    Indices expected(2 * n, 1);
    std::fill_n(expected.begin(), n + 1, 0);
    expected.back() = 2;
    EXPECT_EQ(Transfers(n, 2 * n), expected) << n;
  }
}

TEST(CommitRule, BestTakesTheSurestAndTiesGoLeft) {
  EXPECT_EQ(CommitBest(WithProbabilities({0.2, 0.9, 0.9, 0.5}), 1), (Indices{1}));
  EXPECT_EQ(CommitBest(WithProbabilities({0.2, 0.9, 0.9, 0.5}), 3), (Indices{1, 2, 3}));
  EXPECT_EQ(CommitBest(WithProbabilities({0.2}), 5), (Indices{0}));
  EXPECT_EQ(CommitBest({}, 5), Indices{});
}

TEST(CommitRule, ThresholdAlwaysSettlesTheBest) {
  EXPECT_EQ(CommitThreshold(WithProbabilities({0.95, 0.5, 0.9}), 0.9), (Indices{0, 2}));
  EXPECT_EQ(CommitThreshold(WithProbabilities({0.1, 0.5, 0.4}), 0.9), (Indices{1}));
  EXPECT_EQ(CommitThreshold(WithProbabilities({0.1, 0.5}), 0.0), (Indices{0, 1}));
  EXPECT_EQ(CommitThreshold({}, 0.9), Indices{});
}

TEST(CommitRule, FactorFollowsThePaper) {
  // (n + 1) (1 - c_n) < 1: c_1 free, c_2 > 2/3, c_3 > 3/4, c_4 > 4/5.
  EXPECT_EQ(CommitFactor(WithProbabilities({0.1}), 1.0), (Indices{0}));
  EXPECT_EQ(CommitFactor(WithProbabilities({0.9, 0.6}), 1.0), (Indices{0}));
  EXPECT_EQ(CommitFactor(WithProbabilities({0.9, 0.7}), 1.0), (Indices{0, 1}));
  EXPECT_EQ(CommitFactor(WithProbabilities({0.9, 0.76, 0.9, 0.79}), 1.0), (Indices{0, 2, 3}));
}

TEST(CommitRule, DrawnPositionsFollowTheSoftmaxOfTheScores) {
  std::vector<Candidate> candidates(3);
  for (size_t i = 0; i < 3; ++i) candidates[i].score = std::log(static_cast<double>(i + 1));
  std::map<size_t, int> counts;
  for (uint64_t step = 0; step < 6000; ++step) {
    ++counts[CommitDrawn(candidates, 1, 1.0, RandomStream(1, step, 0)).front()];
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(counts[i] / 6000.0, static_cast<double>(i + 1) / 6.0, 0.03) << i;
  }
}

DecodeVocabulary Vocabulary(size_t size) {
  return {.mask_id = static_cast<TokenId>(size - 1),
          .fill_id = 0,
          .stop_ids = {0, 1},
          .num_tokens = size};
}

TEST(TokenSampler, GreedyProbabilityIsTheFullSoftmax) {
  std::vector<float> logits = {1.0f, 3.0f, 2.0f, 0.0f};
  const Candidate c = SampleToken(logits, {}, Vocabulary(4), RandomStream(0, 0, 0));
  EXPECT_EQ(c.token, 1);
  const double sum = std::exp(1.0) + std::exp(3.0) + std::exp(2.0) + 1.0;
  EXPECT_NEAR(c.probability, std::exp(3.0) / sum, 1e-7);  // exponentials of 32 bits
  EXPECT_EQ(c.score, c.probability);
}

TEST(TokenSampler, NeitherTheMaskNorPaddingIsEverChosen) {
  std::vector<float> logits = {0.0f, 1.0f, 2.0f, 9.0f, 8.0f};
  DecodeVocabulary vocabulary = Vocabulary(5);
  vocabulary.mask_id = 3;
  vocabulary.num_tokens = 4;
  for (const double temperature : {0.0, 1.0}) {
    for (const Draw draw : {Draw::kGumbel, Draw::kFiltered}) {
      DecodeOptions options;
      options.temperature = temperature;
      options.draw = draw;
      for (uint64_t seed = 0; seed < 50; ++seed) {
        std::vector<float> row = logits;
        EXPECT_LT(SampleToken(row, options, vocabulary, RandomStream(seed, 0, 0)).token, 3);
      }
    }
  }
}

// A filter that would keep only the mask keeps the best of the others, with no confidence in it.
TEST(TokenSampler, AFilterNeverLeavesTheMaskAlone) {
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f, 9.0f};
  DecodeVocabulary vocabulary = Vocabulary(4);
  vocabulary.mask_id = 3;
  for (const auto& [top_p, top_k] : {std::pair{0.95, size_t{0}}, std::pair{1.0, size_t{1}}}) {
    for (const double temperature : {0.0, 0.2}) {
      for (const Order order : {Order::kEntropy, Order::kMargin, Order::kProbability}) {
        DecodeOptions options;
        options.draw = Draw::kFiltered;
        options.top_p = top_p;
        options.top_k = top_k;
        options.temperature = temperature;
        options.order = order;
        std::vector<float> row = logits;
        const Candidate unsure = SampleToken(row, options, vocabulary, RandomStream(1, 0, 0));
        EXPECT_EQ(unsure.token, 2);
        EXPECT_LT(unsure.probability, 0.01);
        std::vector<float> even = {1.0f, 1.0f, 1.0f, 0.0f};
        const Candidate even_one = SampleToken(even, options, vocabulary, RandomStream(1, 0, 0));
        EXPECT_LE(unsure.score, even_one.score);
      }
    }
  }
}

TEST(TokenSampler, BothDrawsSampleTheTemperedDistribution) {
  const std::vector<float> logits = {0.0f, std::log(2.0f), std::log(5.0f), -30.0f};
  for (const Draw draw : {Draw::kGumbel, Draw::kFiltered}) {
    DecodeOptions options;
    options.temperature = 0.5;  // squares the odds: 1 : 4 : 25
    options.draw = draw;
    std::map<TokenId, int> counts;
    for (uint64_t seed = 0; seed < 6000; ++seed) {
      std::vector<float> row = logits;
      ++counts[SampleToken(row, options, Vocabulary(4), RandomStream(seed, 3, 5)).token];
    }
    EXPECT_NEAR(counts[0] / 6000.0, 1.0 / 30.0, 0.01);
    EXPECT_NEAR(counts[1] / 6000.0, 4.0 / 30.0, 0.02);
    EXPECT_NEAR(counts[2] / 6000.0, 25.0 / 30.0, 0.02);
  }
}

TEST(TokenSampler, TopPKeepsTheTokenThatCrossesTheMassAndTopKKeepsTies) {
  // Probabilities 0.5, 0.3, 0.2.
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f), -100.0f};
  DecodeOptions options;
  options.draw = Draw::kFiltered;
  options.top_p = 0.6;
  std::vector<float> row = logits;
  Candidate c = SampleToken(row, options, Vocabulary(4), RandomStream(0, 0, 0));
  EXPECT_NEAR(c.probability, 0.5 / 0.8, 1e-6);
  options.top_p = 1.0;
  options.top_k = 1;
  row = logits;
  c = SampleToken(row, options, Vocabulary(4), RandomStream(0, 0, 0));
  EXPECT_NEAR(c.probability, 1.0, 1e-6);
  row = {1.0f, 1.0f, 0.0f, 0.0f};
  c = SampleToken(row, options, Vocabulary(4), RandomStream(0, 0, 0));
  EXPECT_NEAR(c.probability, 0.5, 1e-6);
}

TEST(TokenSampler, MarginAndEntropyScores) {
  const std::vector<float> logits = {std::log(0.7f), std::log(0.2f), std::log(0.1f), -200.0f};
  DecodeOptions options;
  options.draw = Draw::kFiltered;
  options.order = Order::kMargin;
  std::vector<float> row = logits;
  EXPECT_NEAR(SampleToken(row, options, Vocabulary(4), RandomStream(0, 0, 0)).score, 0.5, 1e-6);
  options.order = Order::kEntropy;
  row = logits;
  EXPECT_NEAR(SampleToken(row, options, Vocabulary(4), RandomStream(0, 0, 0)).score,
              0.7 * std::log(0.7) + 0.2 * std::log(0.2) + 0.1 * std::log(0.1), 1e-6);
}

TEST(DecodeOptions, ImpossibleCombinationsAreRefused) {
  const auto refused = [](auto change) {
    DecodeOptions options;
    change(options);
    EXPECT_THROW(ValidateDecodeOptions(options), Error);
  };
  EXPECT_NO_THROW(ValidateDecodeOptions({}));
  refused([](DecodeOptions& o) { o.block_length = 7; });
  refused([](DecodeOptions& o) { o.block_length = 0; });
  refused([](DecodeOptions& o) { o.gen_length = 0; });
  refused([](DecodeOptions& o) { o.steps = 3; });
  refused([](DecodeOptions& o) { o.steps = 129; });
  refused([](DecodeOptions& o) { o.temperature = -1.0; });
  refused([](DecodeOptions& o) { o.temperature = NAN; });
  refused([](DecodeOptions& o) { o.top_p = 0.0; });
  refused([](DecodeOptions& o) { o.threshold = 0.9, o.factor = 1.0; });
  refused([](DecodeOptions& o) { o.first_threshold = 1.1; });
  refused([](DecodeOptions& o) { o.first_threshold = 0.9, o.saber = 2; });
  refused([](DecodeOptions& o) { o.first_threshold = 0.9, o.grow_to = 256; });
  refused([](DecodeOptions& o) { o.first_threshold = 0.9, o.block_attention = true; });
}

// Drives a decoder with made-up logits: every position wants token 2 + its number in the canvas,
// position 3 of the canvas wants the end token; confidence falls from left to right.
void Drive(Decoder& decoder, size_t vocab) {
  while (!decoder.done()) {
    const StepInput& input = decoder.Begin();
    for (size_t i = 0; i < input.wanted.size(); ++i) {
      const size_t place = decoder.positions()[i] - decoder.prompt_length();
      std::vector<float> logits(vocab, 0.0f);
      logits[place == 3 ? 0 : 2 + place] = 20.0f - static_cast<float>(place);
      decoder.Offer(input.wanted[i], logits);
    }
    decoder.Commit();
  }
}

TEST(Decoder, EarlyStopEndsWhenTheAnswerIsSettledUpToItsEnd) {
  DecodeOptions options;
  options.gen_length = options.steps = 16;
  options.block_length = 8;
  Decoder decoder({5, 6}, options, Vocabulary(40), 0);
  Drive(decoder, 40);
  EXPECT_EQ(decoder.steps(), 4u);
  EXPECT_EQ(decoder.SettledPrefix().length, 3u);
  EXPECT_TRUE(decoder.SettledPrefix().ended);
  for (const TokenId id : decoder.ids()) EXPECT_NE(id, 39);
  options.stop = Stop::kNever;
  Decoder whole({5, 6}, options, Vocabulary(40), 0);
  Drive(whole, 40);
  EXPECT_EQ(whole.steps(), 16u);
}

TEST(Decoder, ShiftedModelsWantTheRowBeforeThePosition) {
  DecodeOptions options;
  options.gen_length = options.steps = options.block_length = 4;
  Decoder plain({5, 6}, options, Vocabulary(40), 0), shifted({5, 6}, options, Vocabulary(40), 1);
  EXPECT_EQ(plain.Begin().wanted, RowSet::Range(2, 6));
  EXPECT_EQ(shifted.Begin().wanted, RowSet::Range(1, 5));
}

TEST(Decoder, TimeGridStepsThatSettleNothingCostNoForwardPass) {
  DecodeOptions options;
  options.gen_length = options.steps = options.block_length = 8;
  options.schedule = Schedule::kTimeGrid;
  options.stop = Stop::kNever;
  Decoder decoder({5, 6}, options, Vocabulary(40), true);
  Drive(decoder, 40);
  EXPECT_EQ(decoder.steps(), 7u);
}

}  // namespace
}  // namespace spa::rules_test
