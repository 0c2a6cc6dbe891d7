#include "lab/compare.h"

#include <gtest/gtest.h>

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

TEST(Agreement, CountsUpToVanillasEnd) {
  const std::vector<TokenId> vanilla = {5, 6, 7, 9, 1, 1, 1}, stop = {9};
  const auto count = [&](const std::vector<TokenId>& other) {
    const Agreement a = CountAgreement(vanilla, other, stop);
    EXPECT_EQ(a.total, 4u);
    return a.equal;
  };
  EXPECT_EQ(count(vanilla), 4u);
  EXPECT_EQ(count({5, 6, 7, 9, 2, 2, 2}), 4u);  // what follows the end does not count
  EXPECT_EQ(count({5, 0, 7, 0, 1, 1, 1}), 2u);
  EXPECT_EQ(count({5}), 1u);
  EXPECT_EQ(CountAgreement(vanilla, vanilla, {}).total, vanilla.size());  // never ended
}

TEST(CompareCaches, VanillaAgreesWithItselfAndAllCachesGetARow) {
  if (EmbeddedModel().empty()) GTEST_SKIP() << "built without the embedded model";
  Engine engine({.model = {}, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
  CompareOptions options;
  options.entries = Entries(ParseCacheList("spa:rho=1:scope=all,spa"));
  options.parallel = true;
  options.decode = engine.DefaultDecodeOptions();
  options.decode.gen_length = options.decode.steps = 32;
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
  EXPECT_TRUE(rows[3].threshold.has_value());
  EXPECT_GT(rows[2].memory_bytes, 0u);
  const std::string page = CompareReport(rows, "mini", questions.size());
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);  // nothing is fetched
  EXPECT_EQ(page.find("nan"), std::string::npos);
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

TEST(Report, EscapesWhatPeopleWrote) {
  EXPECT_EQ(EscapeHtml("a<b & \"c\">"), "a&lt;b &amp; &quot;c&quot;&gt;");
  HtmlPage page("x<y", "sub");
  page.Table({{"<script>", "b"}, {"1", "2"}});
  EXPECT_EQ(page.Text().find("<script"), std::string::npos);
}

TEST(Report, DrawsDegenerateData) {
  const Plot empty{.title = "t", .x_label = "x", .y_label = "y", .series = {}, .y_min = {}, .y_max = {}};
  EXPECT_EQ(DrawPlot(empty).find("nan"), std::string::npos);
  Plot one = empty;
  one.series.push_back({.name = "s", .points = {{.x = 0.0, .y = 0.0, .label = "p"}}});
  const std::string svg = DrawPlot(one);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace spa
