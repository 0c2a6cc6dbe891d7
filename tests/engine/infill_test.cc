// Texts with gaps: what a template means, that every cache fills them alike when it recomputes
// everything, and that a trained model uses what follows a gap.
#include "engine/infill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "engine/runner.h"

namespace spa {
namespace {

using Parts = std::vector<TemplatePart>;

std::string MessageOf(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Template, TextsAndGapsInTurn) {
  EXPECT_EQ(ParseTemplate("a {{mask:3}}b{{mask}}"),
            (Parts{{"a ", 0}, {"", 3}, {"b", 0}, {"", 16}}));
  EXPECT_EQ(ParseTemplate("{{mask:3}}{{mask:4}}x"), (Parts{{"", 7}, {"x", 0}})) << "one gap";
  EXPECT_EQ(ParseTemplate("{{x}} {mask} {{mask:1}}"), (Parts{{"{{x}} {mask} ", 0}, {"", 1}}));
  for (const char* wrong : {"", "no gap", "{{mask:0}}", "{{mask:}}", "{{mask:-1}}", "{{mask:3",
                            "{{mask 3}}", "{{mask:3x}}", "{{mask:99999999999999999999}}"}) {
    EXPECT_NE(MessageOf([&] { ParseTemplate(wrong); }), "") << wrong;
  }
}

class InfillTest : public testing::Test {
 protected:
  static Engine& engine() {
    static Engine engine({.model = SPA_MODELS_DIR "/minillada.gguf",
                          .threads = 2,
                          .kv_type = KvType::kF32,
                          .progress = {}});
    return engine;
  }
  static Infill Encode(const std::string& text, const std::string& question = {}) {
    std::vector<TokenId> chat;
    if (!question.empty()) {
      chat = engine().Encode({.messages = {{"user", question}}, .text = ""});
    }
    return EncodeInfill(engine(), ParseTemplate(text), chat);
  }
  static std::unique_ptr<Generation> Fill(const Infill& infill, const SharedCache& cache) {
    return RunAlone(engine(), {.prompt = infill.prompt,
                               .decode = ResolveInfill(engine(), {}, infill.given),
                               .cache = cache,
                               .warm_from = nullptr,
                               .prefixes = nullptr,
                               .given = infill.given});
  }
  static std::vector<TokenId> FillIds(const Infill& infill, const SharedCache& cache) {
    const auto generation = Fill(infill, cache);
    return {generation->decoder().ids().begin(), generation->decoder().ids().end()};
  }
  static std::vector<std::string> Gaps(const Generation& generation) {
    std::vector<std::string> gaps;
    for (const FilledPiece& piece : FilledPieces(engine(), generation.decoder())) {
      if (piece.filled) gaps.push_back(piece.text);
    }
    return gaps;
  }
};

TEST_F(InfillTest, OnlyTheGapsAreFilled) {
  const Infill infill = Encode("=> {{mask:3}}.\nAnswer: {{mask:1}}!", "not ( True ) is");
  const auto generation = Fill(infill, engine().PrepareCache({}));
  const Decoder& decoder = generation->decoder();
  EXPECT_EQ(infill.before, "=>") << "the space is the gap's";
  EXPECT_EQ(infill.after, "!");
  EXPECT_EQ(std::ranges::count(decoder.ids(), engine().config().mask_id), 0);
  const size_t begin = infill.prompt.size();
  for (size_t i = 0; i < infill.given.canvas.ids.size(); ++i) {
    if (infill.given.canvas.ids[i] == engine().config().mask_id) {
      EXPECT_EQ(std::ranges::count(engine().vocabulary().stop_ids, decoder.ids()[begin + i]), 0)
          << "a gap is not left early";
    } else {
      EXPECT_EQ(decoder.ids()[begin + i], infill.given.canvas.ids[i]);
    }
  }
  const auto pieces = FilledPieces(engine(), decoder);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_TRUE(pieces[0].text.starts_with(' ')) << pieces[0].text;
  EXPECT_EQ(pieces[1].text, ".\nAnswer:");
  EXPECT_TRUE(pieces[2].text.starts_with(' ')) << pieces[2].text;
  EXPECT_EQ(generation->Stats().generated_tokens, 4u);
  EXPECT_TRUE(generation->Stats().ended);
}

TEST_F(InfillTest, EveryCacheFillsGapsAndAFullBudgetFillsThemAsNoneDoes) {
  const Infill infill = Encode("=> {{mask:6}} => {{mask:3}}. Answer: False", "not ( True ) is");
  const std::vector<TokenId> none = FillIds(infill, engine().PrepareCache({}));
  for (const CacheInfo& info : Caches()) {
    const SharedCache cache = engine().PrepareCache({.name = info.name, .options = {}});
    if (cache->make()->keeps().needs_block_attention) continue;
    const std::vector<TokenId> filled = FillIds(infill, cache);
    const std::span ids(filled);
    EXPECT_EQ(std::ranges::count(ids, engine().config().mask_id), 0) << info.name;
    EXPECT_TRUE(std::ranges::equal(ids.first(infill.prompt.size()), infill.prompt)) << info.name;
    EXPECT_TRUE(std::ranges::equal(ids.last(infill.given.suffix.size()), infill.given.suffix))
        << info.name;
    CacheSpec full{.name = info.name, .options = {}};
    std::istringstream options(info.full_options);
    for (std::string option; options >> option;) AddOption(full, option);
    EXPECT_EQ(FillIds(infill, engine().PrepareCache(full)), none)
        << info.name << " " << info.full_options;
  }
}

// The model was trained with hidden brackets. What opens is told by nothing but what closes it,
// behind the gap: the text before is the same for all four.
TEST_F(InfillTest, ATrainedModelUsesWhatFollowsTheGap) {
  const std::string question =
      "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nComplete the rest of the "
      "sequence, "
      "making sure that the parentheses are closed properly. Input: ";
  const std::pair<const char*, const char*> around[] = {
      {"(", ""}, {"[ (", " )"}, {"{ } <", ""}, {"< ( ) [", " ]"}, {"( { [ ] } <", " >"}};
  const std::pair<const char*, const char*> pairs[] = {
      {" (", ")"}, {" [", "]"}, {" {", "}"}, {" <", ">"}};
  for (const char* cache : {"none", "spa", "fast-dual"}) {
    const SharedCache prepared = engine().PrepareCache({.name = cache, .options = {}});
    for (const auto& [before, after] : around) {
      for (const auto& [opens, closes] : pairs) {
        const std::string text = question + before + " {{mask:1}} " + closes + after + "<|eot_id|>";
        EXPECT_EQ(Gaps(*Fill(Encode(text), prepared)), std::vector<std::string>{opens})
            << cache << ": " << text;
      }
    }
  }
}

TEST_F(InfillTest, EditsLeaveTheGivenTextAlone) {
  const Infill infill = Encode("=> zebra {{mask:3}} => zebra {{mask:2}}", "not ( True ) is");
  const std::string length = std::to_string(infill.given.canvas.ids.size());
  for (const std::string& block : {std::string("1"), length}) {
    DecodeChoices choices;
    choices.Set("threshold", "0.5");
    choices.Set("edit-threshold", "0.01");
    choices.Set("block-length", block);
    choices.Set("steps", length);
    const auto generation =
        RunAlone(engine(), {.prompt = infill.prompt,
                            .decode = ResolveInfill(engine(), choices, infill.given),
                            .cache = engine().PrepareCache({}),
                            .warm_from = nullptr,
                            .prefixes = nullptr,
                            .given = infill.given});
    const auto pieces = FilledPieces(engine(), generation->decoder());
    ASSERT_EQ(pieces.size(), 3u) << block;
    EXPECT_EQ(pieces[1].text, " => zebra") << block;
  }
}

// What these remember of a position would not move with it.
TEST_F(InfillTest, AGapThatGrowsIsRefusedWithWhatRemembersPositions) {
  Engine grows({.model = SPA_TEST_DATA "/families/dreamon/model",
                .threads = 1,
                .kv_type = KvType::kF32,
                .progress = {}});
  const Given given{{std::vector<TokenId>(4, grows.config().mask_id), {}}, {3}};
  EXPECT_NO_THROW(ResolveInfill(grows, {}, given));
  for (const auto& [name, value] :
       {std::pair{"klass", "0.01"}, {"credit", "0.7"}, {"cfg-scale", "1"}}) {
    DecodeChoices choices;
    choices.Set(name, value);
    EXPECT_NE(MessageOf([&, &refused = choices] {
                ResolveInfill(grows, refused, given);
              }).find("klass, credit and guidance"),
              std::string::npos)
        << name;
  }
}

TEST_F(InfillTest, SaysWhatItCannotDo) {
  const Infill infill = Encode("a {{mask:4}} b");
  DecodeChoices choices;
  choices.Set("grow", "4");
  EXPECT_NE(MessageOf([&] { ResolveInfill(engine(), choices, infill.given); }).find("--grow"),
            std::string::npos);
  Engine blocks({.model = SPA_TEST_DATA "/families/sdar/model",
                 .threads = 1,
                 .kv_type = KvType::kF32,
                 .progress = {}});
  DecodeOptions options = blocks.DefaultDecodeOptions();
  options.gen_length = 4;
  const TokenId mask = blocks.config().mask_id;
  EXPECT_NE(MessageOf([&] {
              blocks.Start({1}, options, *blocks.PrepareCache({}), nullptr,
                           {{{mask, mask, 2, mask}, {}}, {3}});
            }).find("block by block"),
            std::string::npos);
}

}  // namespace
}  // namespace spa
