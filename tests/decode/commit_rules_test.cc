// The commit rules of 2025 and 2026 against vectors worked out from their definitions.
#include <gtest/gtest.h>

#include <cmath>

#include "decode/commit_rule.h"
#include "decode/decoder.h"
#include "decode/position_memory.h"
#include "tests/decode/candidates.h"

namespace spa {
namespace {

double Probability(const std::vector<float>& logits, size_t id) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return std::exp(static_cast<double>(logits[id])) / sum;
}

TEST(Credit, RaisesATokenThatStaysTheBest) {
  DecodeOptions options;
  options.credit = 0.7;
  PositionMemory memory;
  const double probabilities[] = {0.758412, 0.797594, 0.819295};
  const double credits[] = {0.921713, 1.659084, 2.248980};
  for (size_t step = 0; step < 3; ++step) {
    std::vector<float> logits = {2.0f, 1.0f, 0.0f};
    AddCredit(options, logits, memory);
    ASSERT_EQ(memory.credits.size(), 1u);
    EXPECT_NEAR(memory.credits[0].second, credits[step], 1e-6);
    EXPECT_NEAR(Probability(logits, 0), probabilities[step], 1e-6);
  }
  // Another best token: both keep a credit, the old one a smaller one.
  std::vector<float> logits = {1.0f, 2.0f, 0.0f};
  AddCredit(options, logits, memory);
  EXPECT_NEAR(memory.credits[0].second, 0.8 * 2.248980, 1e-6);
  EXPECT_NEAR(memory.credits[1].second, 0.921713, 1e-6);
  EXPECT_NEAR(logits[0], 1.0 + 0.7 * std::log(1.0 + 0.8 * 2.248980), 1e-6);
}

TEST(EntropyBound, AllButTheLargestEntropyMustFit) {
  std::vector<Candidate> candidates = WithProbabilities({0.9, 0.99, 0.6, 0.95});
  const double entropies[] = {0.3, 0.05, 0.8, 0.2};
  for (size_t i = 0; i < 4; ++i) candidates[i].entropy = entropies[i];
  // In the order 1, 3, 0, 2 the sums without the largest are 0, 0.05, 0.25, 0.55.
  EXPECT_EQ(CommitEntropyBound(candidates, 0.0), (Indices{1}));
  EXPECT_EQ(CommitEntropyBound(candidates, 0.05), (Indices{1, 3}));
  EXPECT_EQ(CommitEntropyBound(candidates, 0.26), (Indices{0, 1, 3}));
  EXPECT_EQ(CommitEntropyBound(candidates, 1e6), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(CommitEntropyBound({}, 1.0), Indices{});
  // Certain ones are free.
  for (Candidate& candidate : candidates) candidate.entropy = 0.0;
  EXPECT_EQ(CommitEntropyBound(candidates, 0.0).size(), 4u);
}

TEST(Hierarchical, TheSurestOfEveryRunIsSettled) {
  const std::vector<uint32_t> positions = {4, 5, 6, 9, 10, 12};
  // Runs 4-6, 9-10 and 12.
  EXPECT_EQ(
      CommitHierarchical(WithProbabilities({0.5, 0.6, 0.2, 0.95, 0.92, 0.3}), positions, 0.9, 0.4),
      (Indices{1, 3, 4}));
  // Nothing reaches 0.4: the best of all.
  EXPECT_EQ(
      CommitHierarchical(WithProbabilities({0.1, 0.2, 0.3, 0.35, 0.3, 0.1}), positions, 0.9, 0.4),
      (Indices{3}));
  EXPECT_EQ(CommitHierarchical({}, {}, 0.9, 0.4), Indices{});
}

TEST(Klass, OnlyWhatIsSureAndHasSettledDown) {
  std::vector<Candidate> candidates = WithProbabilities({0.95, 0.95, 0.7, 0.5});
  const double divergences[] = {0.001, 0.5, 0.001, 0.001};
  for (size_t i = 0; i < 4; ++i) candidates[i].divergence = divergences[i];
  EXPECT_EQ(CommitKlass(candidates, 0.6, 0.01, 1), (Indices{0, 2}));
  EXPECT_EQ(CommitKlass(candidates, 0.99, 0.01, 2), (Indices{0, 1}));
}

TEST(Klass, DivergenceIsTheLargerOfTwoSteps) {
  PositionMemory memory;
  const std::vector<float> even = {0.0f, 0.0f};
  const std::vector<float> odds = {std::log(3.0f), 0.0f};
  const double at_first = -std::log(1e-12) - std::log(2.0);
  EXPECT_NEAR(Divergence(even, memory), at_first, 1e-6);
  EXPECT_NEAR(Divergence(even, memory), at_first, 1e-6);  // the first still counts
  EXPECT_NEAR(Divergence(even, memory), 0.0, 1e-9);
  const double moved = 0.75 * std::log(1.5) + 0.25 * std::log(0.5);
  EXPECT_NEAR(Divergence(odds, memory), moved, 1e-6);
  EXPECT_NEAR(Divergence(odds, memory), moved, 1e-6);
  EXPECT_NEAR(Divergence(odds, memory), 0.0, 1e-6);
}

TEST(LoosenedThreshold, FallsAsThePaperSays) {
  // One of 32 left, alpha 0.3: 0.83 with 97 rows behind the block, 0.77 with 33, 0.63 with none.
  EXPECT_NEAR(LoosenedThreshold(0.9, 0.3, 32, 32, 97), 0.9, 1e-12);
  EXPECT_NEAR(LoosenedThreshold(0.9, 0.3, 0, 32, 97), 0.833, 1e-3);
  EXPECT_NEAR(LoosenedThreshold(0.9, 0.3, 0, 32, 33), 0.767, 1e-3);
  EXPECT_NEAR(LoosenedThreshold(0.9, 0.3, 0, 32, 0), 0.63, 1e-12);
}

TEST(Prophet, AsksForLessAsTimeGoesOn) {
  std::vector<Candidate> candidates(2);
  candidates[0].gap = 4.0;
  candidates[1].gap = 7.0;  // 5.5 on average
  EXPECT_FALSE(ProphetExits(candidates, 0.1));
  EXPECT_TRUE(ProphetExits(candidates, 0.4));
  EXPECT_TRUE(ProphetExits(candidates, 0.9));
  candidates[1].gap = 1.1;  // 2.55
  EXPECT_FALSE(ProphetExits(candidates, 0.4));
  EXPECT_TRUE(ProphetExits(candidates, 0.9));
  EXPECT_FALSE(ProphetExits({}, 0.9));
}

DecodeVocabulary Vocabulary(size_t size) {
  return {.mask_id = static_cast<TokenId>(size - 1),
          .fill_id = 0,
          .stop_ids = {0, 1},
          .num_tokens = size};
}

DecodeOptions Canvas(size_t length, size_t block) {
  DecodeOptions options;
  options.gen_length = options.steps = length;
  options.block_length = block;
  options.stop = Stop::kNever;
  return options;
}

// Gives every wanted position token 2 with probability `of(position in the canvas)`.
template <typename Probability>
void Step(Decoder& decoder, const Probability& of) {
  const StepInput& input = decoder.Begin();
  for (size_t i = 0; i < input.wanted.size(); ++i) {
    const double p = of(decoder.positions()[i] - decoder.prompt_length());
    std::vector<float> logits(4, static_cast<float>(std::log((1.0 - p) / 3.0)));
    logits[2] = static_cast<float>(std::log(p));
    decoder.Offer(input.wanted[i], logits);
  }
  decoder.Commit();
}

TEST(Decoder, CreditSettlesWhatAThresholdWouldNot) {
  DecodeOptions options = Canvas(8, 8);
  options.threshold = 0.9;
  const auto steps = [&](double credit) {
    options.credit = credit;
    Decoder decoder({3}, options, Vocabulary(4), 0);
    while (!decoder.done()) Step(decoder, [](size_t) { return 0.8; });
    return decoder.steps();
  };
  EXPECT_EQ(steps(0.0), 8u);  // one at a time
  EXPECT_LT(steps(0.7), 5u);
}

TEST(Decoder, ProphetSettlesTheRestInARandomOrderToo) {
  DecodeOptions options = Canvas(8, 8);
  options.order = Order::kRandom;
  const auto steps = [&](bool prophet) {
    options.prophet = prophet;
    Decoder decoder({3}, options, Vocabulary(4), 0);
    while (!decoder.done()) Step(decoder, [](size_t) { return 0.9999; });
    return decoder.steps();
  };
  EXPECT_EQ(steps(false), 8u);
  EXPECT_LT(steps(true), 4u);
}

// Left to right, places 1, 2 and 5 are sure in the first step; later nothing is.
TEST(Decoder, WhatTheFirstStepWasSureOfIsSettledOnceAllBeforeItIs) {
  DecodeOptions options = Canvas(8, 1);
  options.first_threshold = 0.9;
  Decoder decoder({3}, options, Vocabulary(4), 0);
  const auto sure = [](size_t place) {
    return place == 1 || place == 2 || place == 5 ? 0.95 : 0.6;
  };
  std::vector<RowSet> changed;
  std::vector<size_t> read;
  while (!decoder.done()) {
    Step(decoder, [&](size_t place) { return decoder.steps() == 0 ? sure(place) : 0.5; });
    changed.push_back(decoder.changed());
    read.push_back(decoder.positions().size());
  }
  // Rows: the prompt has one. A sure token is not settled before its turn, and never read again.
  EXPECT_EQ(changed, (std::vector{RowSet::Range(1, 4), RowSet::Range(4, 5), RowSet::Range(5, 7),
                                  RowSet::Range(7, 8), RowSet::Range(8, 9)}));
  EXPECT_EQ(read, (std::vector<size_t>{8, 1, 1, 1, 1}));
}

TEST(Decoder, AnEndTokenIsNotSettledForHavingBeenSureInTheFirstStep) {
  DecodeOptions options = Canvas(4, 1);
  options.first_threshold = 0.9;
  Decoder decoder({3}, options, Vocabulary(4), 0);
  const StepInput& input = decoder.Begin();
  for (const uint32_t row : input.wanted) {
    std::vector<float> logits = {9.0f, 0.0f, 0.0f, 0.0f};  // 0 ends an answer
    decoder.Offer(row, logits);
  }
  decoder.Commit();
  EXPECT_EQ(decoder.changed(), RowSet::Range(1, 2));
}

TEST(Decoder, TheWindowHidesFarMasksButNotTheLast) {
  DecodeOptions options = Canvas(64, 8);
  options.window = 4;
  Decoder decoder({5, 6}, options, Vocabulary(40), 0);
  EXPECT_EQ(decoder.Begin().visible, RowSet::All(14).Union(RowSet::Range(65, 66)));
  // What follows the canvas stays in sight.
  Decoder infill({5, 6}, options, Vocabulary(40), 0, {7, 8});
  EXPECT_EQ(infill.Begin().visible, RowSet::All(14).Union(RowSet::Range(65, 68)));
  // The window reaches the end.
  options.window = 60;
  Decoder near({5, 6}, options, Vocabulary(40), 0);
  EXPECT_EQ(near.Begin().visible, RowSet::All(66));
}

TEST(Decoder, DPadThinsTheWindowTheFartherTheMore) {
  DecodeOptions options = Canvas(288, 32);
  options.window = 256;
  options.window_scale = 2.0;
  size_t kept = 0, near = 0;
  for (options.seed = 0; options.seed < 200; ++options.seed) {
    Decoder decoder({5, 6}, options, Vocabulary(40), 0);
    const RowSet& visible = decoder.Begin().visible;
    EXPECT_TRUE(visible.Includes(RowSet::All(34)));
    kept += visible.size() - 34;
    near += visible.Contains(34) ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / 200.0, 64.0, 2.0);  // expected number
  EXPECT_NEAR(static_cast<double>(near) / 200.0, 0.80, 0.1);  // 2 / sqrt(2 pi)
}

TEST(Decoder, ASlidingBlockFollowsTheFirstOpenPosition) {
  for (const Slide slide : {Slide::kGreedy, Slide::kConst}) {
    DecodeOptions options = Canvas(32, 8);
    options.slide = slide;
    Decoder decoder({3, 3}, options, Vocabulary(4), 0);
    // The second half of the block is surer, so settled first.
    const auto of = [](size_t place) { return place % 8 < 4 ? 0.4 : 0.9; };
    for (size_t step = 0; step < 4; ++step) Step(decoder, of);
    // 4 settled behind 4 open ones: greedy goes on to have 8 open in the block.
    const StepInput& input = decoder.Begin();
    EXPECT_EQ(input.wanted.size(), slide == Slide::kGreedy ? 8u : 4u);
    EXPECT_EQ(input.block_end, slide == Slide::kGreedy ? 14u : 10u);
  }
}

}  // namespace
}  // namespace spa
