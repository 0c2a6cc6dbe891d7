#include "lab/compare.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "lab/report.h"

namespace spa {
namespace {

TEST(CacheSpecs, CarryTheirOptions) {
  const auto specs = ParseCacheList("none,spa:rank=8:scope=all,spa");
  ASSERT_EQ(specs.size(), 3u);
  EXPECT_EQ(specs[1].ToString(), "spa(rank=8,scope=all)");
  EXPECT_EQ(specs[2].ToString(), "spa");
  EXPECT_TRUE(ParseCacheList("").empty());
  EXPECT_THROW(ParseCacheSpec("spa:rank"), Error);
  EXPECT_THROW(ParseCacheSpec(""), Error);
}

TEST(Agreement, CountsUpToTheEndOfNone) {
  const std::vector<TokenId> exact = {5, 6, 7, 9, 1, 1, 1}, stop = {9};
  const auto count = [&](const std::vector<TokenId>& other) {
    const Agreement a = CountAgreement(exact, other, stop);
    EXPECT_EQ(a.total, 4u);
    return a.equal;
  };
  EXPECT_EQ(count(exact), 4u);
  EXPECT_EQ(count({5, 6, 7, 9, 2, 2, 2}), 4u);  // what follows the end does not count
  EXPECT_EQ(count({5, 0, 7, 0, 1, 1, 1}), 2u);
  EXPECT_EQ(count({5}), 1u);
  EXPECT_EQ(CountAgreement(exact, exact, {}).total, exact.size());  // never ended
}

TEST(CompareCaches, NoneAgreesWithItselfAndAllCachesGetARow) {
  if (EmbeddedModel().empty()) GTEST_SKIP() << "built without the embedded model";
  Engine engine({.model = {}, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
  CompareOptions options;
  options.entries = Entries(ParseCacheList("spa:rho=1:min-drift=0:scope=all,spa"));
  CompareRule plain{.label = "plain", .decode = engine.DefaultDecodeOptions()};
  plain.decode.gen_length = plain.decode.steps = 32;
  plain.decode.block_length = 16;
  plain.decode.first_threshold.reset();
  CompareRule parallel = plain;
  parallel.label = "threshold=0.9";
  parallel.decode.threshold = 0.9;
  options.rules = {plain, parallel};
  std::vector<Question> questions = BuiltInQuestions();
  questions.resize(2);
  const auto rows = CompareCaches(engine, options, questions);
  ASSERT_EQ(rows.size(), 6u);  // none comes by itself; twice with parallel decoding
  EXPECT_EQ(rows[0].cache, "none");
  EXPECT_EQ(rows[0].agreement, 1.0);
  EXPECT_EQ(rows[0].speedup, 1.0);
  EXPECT_EQ(rows[1].agreement, 1.0);  // every row, every step: equal to none
  EXPECT_EQ(rows[1].accuracy, rows[0].accuracy);
  EXPECT_EQ(rows[4].agreement, 1.0);
  EXPECT_LT(rows[2].rows_fraction, rows[0].rows_fraction);
  EXPECT_EQ(rows[3].rule, "threshold=0.9");
  EXPECT_GT(rows[3].tokens_per_step, rows[0].tokens_per_step);
  EXPECT_LT(rows[2].rows_per_token, rows[0].rows_per_token);
  EXPECT_GT(rows[2].memory_bytes, 0u);
  const std::string page = CompareReport(rows, "mini", questions.size());
  const size_t begin = page.find(R"({"title":"Caches side by side")");
  ASSERT_NE(begin, std::string::npos);
  const auto report =
      nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  // Accuracy against speed and against rows, agreement, rows, numbers.
  ASSERT_EQ(report["sections"].size(), 5u);
  for (size_t i = 0; i < 4; ++i) {
    const auto& series = report["sections"][i]["plot"]["series"];
    ASSERT_EQ(series.size(), 2u);
    for (const auto& one : series) {
      ASSERT_EQ(one["points"].size(), 3u);
      for (const auto& point : one["points"]) {
        EXPECT_GT(point["x"].get<double>(), 0.0);
        EXPECT_GE(point["y"].get<double>(), 0.0);
        EXPECT_LE(point["y"].get<double>(), 1.0);
      }
    }
  }
  EXPECT_EQ(report["sections"][4]["table"]["rows"].size(), rows.size());
}

// Token by token, caches that refresh with every block have nothing to reuse.
TEST(DefaultRules, AddLongerBlocksForAModelThatDecodesTokenByToken) {
  const auto rules = [](const char* model, const DecodeChoices& given,
                        std::optional<double> threshold = {}) {
    const Engine engine({.model = std::string(SPA_MODELS_DIR "/") + model,
                         .threads = 1,
                         .kv_type = {},
                         .progress = {}});
    return DefaultRules(given, engine, threshold);
  };
  using Labels = std::vector<std::string>;
  EXPECT_EQ(rules("minillada.gguf", {}), (Labels{"plain", "block-length=16"}));
  EXPECT_EQ(rules("minillada.gguf", {}, 0.9),
            (Labels{"plain", "block-length=16", "block-length=16:threshold=0.9"}));
  DecodeChoices blocks;
  blocks.Set("block-length", "1");
  EXPECT_EQ(rules("minillada.gguf", blocks), Labels{"plain"});
  EXPECT_EQ(rules("minideep.gguf", {}, 0.8), (Labels{"plain", "threshold=0.8"}));
}

TEST(AccuracyUnderParallelism, GivesThePublishedNumbers) {
  // d3LLM's leaderboard: LLaDA on GSM8K-CoT, Fast-dLLM and d3LLM; on HumanEval, Fast-dLLM.
  EXPECT_NEAR(AccuracyUnderParallelism({{2.77, 74.68}, {1.0, 74.79}}, 74.98), 205.7811, 1e-3);
  EXPECT_NEAR(AccuracyUnderParallelism({{1.0, 74.02}, {9.11, 73.09}}, 74.98), 637.6549, 1e-3);
  EXPECT_NEAR(AccuracyUnderParallelism({{1.0, 38.16}, {2.56, 37.8}}, 67.73), 54.0245, 1e-3);
  // A point that lost more than 5 percent adds nothing.
  EXPECT_EQ(AccuracyUnderParallelism({{1.0, 80.0}, {5.0, 70.0}}, 80.0), 80.0);
  EXPECT_EQ(AccuracyUnderParallelism({}, 80.0), 0.0);
}

TEST(AblationEntries, CoverThePapersRows) {
  if (EmbeddedModel().empty()) GTEST_SKIP() << "built without the embedded model";
  Engine engine({.model = {}, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
  const auto entries = AblationEntries(engine, ParseCacheSpec("spa"));
  size_t identifiers = 0, ranks = 0, budgets = 0, forms = 0;
  for (const CompareEntry& entry : entries) {
    identifiers += entry.group == "identifier";
    ranks += entry.group == "rank";
    budgets += entry.group == "budget";
    forms += entry.group == "form";
  }
  EXPECT_EQ(identifiers, 6u);
  EXPECT_GE(ranks, 2u);
  EXPECT_EQ(budgets, 2u);
  EXPECT_EQ(forms, 2u);
  EXPECT_THROW(AblationEntries(engine, ParseCacheSpec("none")), Error);
}

TEST(ReportPage, IsThePageWithTheReportInside) {
  const std::string_view page = EmbeddedPage();
  const std::string report = ReportPage(R"({"title":"</script><!-- <script>"})");
  const std::string inside = R"({"title":"\u003c/script>\u003c!-- \u003cscript>"})";
  const size_t place = report.find(inside);
  ASSERT_NE(place, std::string::npos);
  EXPECT_EQ(report.substr(0, place) + report.substr(place + inside.size()), page);
  const std::string_view tag = R"(<script type="application/json" id="report">)";
  EXPECT_EQ(report.substr(place - tag.size(), tag.size()), tag);
  EXPECT_TRUE(report.substr(place + inside.size()).starts_with("</script>"));
}

}  // namespace
}  // namespace spa
