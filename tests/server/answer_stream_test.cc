// Streamed text: stop strings across token borders, the token limit, whole characters.
#include "server/answer_stream.h"

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/server/test_engine.h"

namespace spa {
namespace {

struct Outcome {
  std::string text;
  std::vector<std::string> pieces;
  bool finished, stopped;
  size_t num_tokens;
};

// Settles the tokens of `text` one after the other, or all at once.
Outcome Settle(const std::string& text, std::vector<std::string> stops, size_t max_tokens,
               bool by_end_token, bool one_by_one) {
  const Tokenizer& tokenizer = TestEngine().tokenizer();
  const std::vector<TokenId> ids = tokenizer.Encode(text);
  AnswerStream stream(tokenizer, std::move(stops), max_tokens);
  Outcome outcome{};
  for (size_t n = one_by_one ? 0 : ids.size(); n <= ids.size() && !stream.finished(); ++n) {
    const bool last = n == ids.size();
    outcome.pieces.push_back(stream.Advance(std::span(ids).first(n), last, last && by_end_token));
    outcome.text += outcome.pieces.back();
  }
  outcome.finished = stream.finished();
  outcome.stopped = stream.stopped();
  outcome.num_tokens = stream.num_tokens();
  return outcome;
}

TEST(AnswerStream, StreamedEqualsWhole) {
  const std::string text =
      "Steps: Gr\xc3\xbc\xc3\x9f"
      "e \xe2\x82\xac. Answer: True";
  for (const std::vector<std::string>& stops : {std::vector<std::string>{},
                                                {"Answer"},
                                                {"zzz",
                                                 "\xc3\x9f"
                                                 "e"},
                                                {"Ans", "Answer"}}) {
    const Outcome streamed = Settle(text, stops, 1000, true, true);
    const Outcome whole = Settle(text, stops, 1000, true, false);
    EXPECT_EQ(streamed.text, whole.text);
    EXPECT_TRUE(streamed.finished && streamed.stopped);
  }
  EXPECT_EQ(Settle(text, {}, 1000, true, true).text, text);
}

TEST(AnswerStream, StopsAtTheFirstStopString) {
  EXPECT_EQ(Settle("one two three two", {"two"}, 1000, false, true).text, "one ");
  EXPECT_EQ(Settle("one two three", {"three", "two"}, 1000, false, true).text, "one ");
  EXPECT_EQ(Settle("one two three", {"one"}, 1000, false, true).text, "");
  // Half a stop string at the end is text after all.
  EXPECT_EQ(Settle("one two thr", {"three"}, 1000, true, true).text, "one two thr");
}

TEST(AnswerStream, NeverGivesOutTextThatAStopStringTakesBack) {
  const std::string text = "a b c END d";
  const Outcome outcome = Settle(text, {"c END"}, 1000, false, true);
  std::string so_far;
  for (const std::string& piece : outcome.pieces) {
    so_far += piece;
    EXPECT_TRUE(std::string("a b ").starts_with(so_far)) << so_far;
  }
  EXPECT_EQ(so_far, "a b ");
}

TEST(AnswerStream, GivesNoMoreThanMaxTokens) {
  const auto ids = TestEngine().tokenizer().Encode("one two three four");
  ASSERT_GT(ids.size(), 3u);
  const Outcome outcome = Settle("one two three four", {}, 3, true, true);
  EXPECT_EQ(outcome.num_tokens, 3u);
  EXPECT_TRUE(outcome.finished);
  EXPECT_FALSE(outcome.stopped);
  // A limit that the answer just fills is not a cut.
  EXPECT_EQ(Settle("one two three four", {}, ids.size(), false, true).num_tokens, ids.size());
}

}  // namespace
}  // namespace spa
