// Revocable decoding and canvases that grow, on made-up logits.
#include "decode/revoke.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "decode/decoder.h"
#include "tests/decode/candidates.h"

namespace spa::revoke_test {
namespace {

TEST(Wino, SettlesWideButNotEverythingAtOnce) {
  EXPECT_EQ(WinoSettles(WithProbabilities({0.1, 0.7, 0.65, 0.5}), 0.6), (Indices{1, 2}));
  EXPECT_EQ(WinoSettles(WithProbabilities({0.1, 0.3, 0.2}), 0.6), (Indices{1}));
  // 10 sure ones: 7 may be settled; of 40, 20.
  std::vector<double> probabilities;
  for (size_t i = 0; i < 40; ++i) probabilities.push_back(0.7 + 0.005 * static_cast<double>(i));
  EXPECT_EQ(
      WinoSettles(WithProbabilities({probabilities.begin(), probabilities.begin() + 10}), 0.6),
      (Indices{3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(WinoSettles(WithProbabilities(probabilities), 0.6).size(), 20u);
  EXPECT_EQ(WinoSettles(WithProbabilities({0.9, 0.9, 0.9, 0.9, 0.9}), 0.6).size(), 5u);
}

TEST(Wino, OpensFewerThanTheStepBeforeSettled) {
  const std::vector<double> unseen = {0.95, 0.2, 0.8, 0.1, 0.99};
  EXPECT_EQ(WinoOpens(unseen, 0.9, kWinoFirstLast), (Indices{1, 2, 3}));
  EXPECT_EQ(WinoOpens(unseen, 0.9, 3), (Indices{1, 3}));
  EXPECT_EQ(WinoOpens(unseen, 0.9, 1), Indices{});
}

TEST(Saber, TheMeanOfWhatIsSettledIsTheThreshold) {
  EXPECT_EQ(SaberSettles(WithProbabilities({0.5, 0.9, 0.8, 0.95}), 0.75, 2), (Indices{1, 2, 3}));
  EXPECT_EQ(SaberSettles(WithProbabilities({0.5, 0.9, 0.8, 0.95}), 1.0, 2), (Indices{1, 3}));
  EXPECT_EQ(SaberSettles(WithProbabilities({0.5}), 1.0, 2), (Indices{0}));
}

TEST(Saber, OpensWhatLostMostConfidence) {
  const std::vector<double> gain = {0.1, -0.3, 0.0, -0.1, 0.2};
  EXPECT_EQ(SaberOpens(gain, 2, 2), (Indices{1}));
  EXPECT_EQ(SaberOpens(gain, 2, 1), Indices{});
  EXPECT_EQ(SaberOpens(gain, 2, 17), (Indices{1, 2, 3}));
  EXPECT_EQ(SaberOpens(gain, 2, 0), Indices{});
}

constexpr size_t kVocab = 40;
constexpr TokenId kMask = kVocab - 1;

DecodeVocabulary Vocabulary() {
  return {.mask_id = kMask, .fill_id = 0, .stop_ids = {0}, .num_tokens = kVocab};
}

std::vector<float> Logits(TokenId token, double probability) {
  std::vector<float> logits(kVocab,
                            static_cast<float>(std::log((1.0 - probability) / (kVocab - 1))));
  logits[static_cast<size_t>(token)] = static_cast<float>(std::log(probability));
  return logits;
}

void Offer(Decoder& decoder, uint32_t row, std::vector<float> logits) {
  decoder.Offer(row, logits);
}

DecodeOptions Canvas(size_t length, size_t block) {
  DecodeOptions options;
  options.gen_length = options.steps = length;
  options.block_length = block;
  return options;
}

// At first every position wants token 5. Position 1 is wrong: unseen, it is not probable.
TEST(Wino, AWrongTokenOpensAgainAndIsNotStreamedBefore) {
  DecodeOptions options = Canvas(16, 8);
  options.stop = Stop::kNever;
  options.wino = 0.9;
  Decoder decoder({7, 8, 9}, options, Vocabulary(), 0);
  bool opened = false;
  while (!decoder.done()) {
    const StepInput& input = decoder.Begin();
    ASSERT_EQ(input.num_rows(), 3u + 16u + 8u);
    const bool first_block = decoder.block().begin == 3;
    for (const uint32_t row : input.reads()) {
      std::vector<float> logits;
      if (input.IsShadow(row)) {
        const uint32_t position = input.PlaceOf(row);
        EXPECT_FALSE(decoder.masked()[position]);
        EXPECT_TRUE(input.visible.Contains(row) && input.renewed.Contains(row));
        logits = position == 4 && !opened ? Logits(6, 0.95) : Logits(5, 0.95);
      } else {
        logits = Logits(row == 4 && opened ? 6 : 5, row < 3 + 6 ? 0.8 : 0.7);
      }
      decoder.Offer(row, logits);
    }
    decoder.Commit();
    if (first_block && decoder.changed().Contains(4) && decoder.masked()[4]) {
      EXPECT_EQ(decoder.ids()[4], kMask);
      opened = true;
    }
    // Nothing of a block that may still change is told.
    if (!decoder.done() && decoder.block().begin == 3) {
      EXPECT_EQ(decoder.SettledPrefix().length, 0u);
    }
  }
  EXPECT_TRUE(opened);
  EXPECT_EQ(decoder.ids().size(), 3u + 16u);
  EXPECT_EQ(decoder.SettledPrefix().length, 16u);
  EXPECT_EQ(decoder.settled(), 16u);
}

TEST(Wino, ModelsWithShiftedLogitsAreRefused) {
  DecodeOptions options = Canvas(16, 8);
  options.wino = 0.9;
  EXPECT_THROW(Decoder({7}, options, Vocabulary(), 1), Error);
}

TEST(Saber, ADoubtfulTokenOpensAgainAndEveryStepGoesForward) {
  DecodeOptions options = Canvas(16, 16);
  options.stop = Stop::kNever;
  options.saber = 2;
  Decoder decoder({7}, options, Vocabulary(), 0);
  size_t opened = 0;
  for (size_t open = 16; !decoder.done();) {
    const StepInput& input = decoder.Begin();
    for (const uint32_t row : input.reads()) {
      // Settled position 3 is doubted more and more.
      const bool doubted = !decoder.masked()[row] && row == 3;
      Offer(decoder, row, Logits(5, doubted ? 0.3 : 0.6 + 0.01 * static_cast<double>(16 - row)));
    }
    decoder.Commit();
    if (decoder.done()) break;
    for (const uint32_t position : decoder.changed()) opened += decoder.masked()[position];
    const size_t left = 16 - decoder.settled();
    EXPECT_LT(left, open);
    open = left;
  }
  EXPECT_GT(opened, 0u);
}

// A model whose answer has 50 tokens, then end tokens.
void Answer(Decoder& decoder, size_t length, double unsure_at = -1) {
  while (!decoder.done()) {
    const StepInput& input = decoder.Begin();
    for (const uint32_t row : input.reads()) {
      const size_t place = row - decoder.prompt_length();
      const double p = static_cast<double>(place) == unsure_at ? 0.05 : 0.95;
      Offer(decoder, row, Logits(place < length ? 5 : 0, p));
    }
    decoder.Commit();
  }
}

TEST(Growth, TheCanvasGrowsUntilItsEndIsSure) {
  DecodeOptions options = Canvas(16, 8);
  options.threshold = 0.9;
  options.grow_to = 256;
  Decoder decoder({7, 8}, options, Vocabulary(), 0);
  Answer(decoder, 50);
  EXPECT_EQ(decoder.SettledPrefix().length, 50u);
  EXPECT_TRUE(decoder.SettledPrefix().ended);
  // 16, 32, 64: there 14 of the last 32 want the end; 128.
  EXPECT_EQ(decoder.canvas().size(), 128u);
  // It never grows beyond what was allowed.
  options.grow_to = 40;
  Decoder bounded({7, 8}, options, Vocabulary(), 0);
  Answer(bounded, 500);
  EXPECT_EQ(bounded.canvas().size(), 40u);
  EXPECT_EQ(bounded.SettledPrefix().length, 40u);
  // An answer that fits costs no pass.
  options.grow_to = 256;
  options.gen_length = options.steps = 64;
  Decoder fits({7, 8}, options, Vocabulary(), 0);
  Answer(fits, 3);
  EXPECT_EQ(fits.steps(), 1u);
  EXPECT_EQ(fits.canvas().size(), 64u);
}

// The end is as sure in a short canvas as in a long one.
TEST(Growth, AShortCanvasThatHoldsTheAnswerStays) {
  DecodeOptions options = Canvas(16, 8);
  options.threshold = 0.9;
  options.grow_to = 256;
  Decoder decoder({7, 8}, options, Vocabulary(), 0);
  Answer(decoder, 3);
  EXPECT_EQ(decoder.canvas().size(), 16u);
}

TEST(Growth, ARandomOrderReadsEveryPositionToo) {
  DecodeOptions options = Canvas(32, 8);
  options.order = Order::kRandom;
  options.grow_to = 64;
  EXPECT_EQ(Decoder({7, 8}, options, Vocabulary(), 0).Begin().wanted.size(), 8u);
}

TEST(Growth, APositionThatNothingFitsBecomesSeveral) {
  DecodeOptions options = Canvas(32, 8);
  options.threshold = 0.9;
  options.grow_to = 64;
  options.stop = Stop::kNever;
  Decoder decoder({7, 8}, options, Vocabulary(), 0);
  // The end is fairly sure, but not quite.
  const StepInput& input = decoder.Begin();
  for (const uint32_t row : input.reads()) {
    const size_t place = row - 2;
    Offer(decoder, row, place == 3 ? Logits(5, 0.05) : Logits(place < 8 ? 5 : 0, 0.95));
  }
  decoder.Commit();
  EXPECT_EQ(decoder.canvas().size(), 39u);
  // What was settled behind it has moved; the masks are in its place.
  EXPECT_EQ(std::vector<TokenId>(decoder.canvas().begin(), decoder.canvas().begin() + 16),
            (std::vector<TokenId>{5, 5, 5, kMask, kMask, kMask, kMask, kMask, kMask, kMask, kMask,
                                  5, 5, 5, 5, kMask}));
  const StepInput& next = decoder.Begin();
  EXPECT_EQ(next.renewed, RowSet::Range(6, 2 + 39));
  EXPECT_EQ(next.changed, RowSet({2, 3, 4, 13, 14, 15, 16}));
}

TEST(Growth, NothingFollowsACanvasThatGrows) {
  DecodeOptions options = Canvas(16, 8);
  options.grow_to = 64;
  EXPECT_THROW(Decoder({7}, options, Vocabulary(), 0, {8}), Error);
  options.window = 8;
  EXPECT_THROW(ValidateDecodeOptions(options), Error);
}

}  // namespace
}  // namespace spa::revoke_test
