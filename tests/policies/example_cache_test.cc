// The worked example of docs/adding-a-cache.md: it obeys the law of all caches, does what it says,
// and is what the document shows.
#include "tests/policies/example_cache.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/test_model.h"
#include "tests/tiny_model.h"

namespace spa {
namespace {

const std::vector<TokenId> kPrompt = {5, 17, 3, 42, 8, 29};

PolicyFactory Near(const std::string& margin) {
  OptionReader options({.name = "near", .options = {{"margin", margin}}}, NearOptionTable());
  return MakeNear(options, {});
}

// Everything the decoder learned from the logits, step by step.
std::vector<double> Decisions(TestModel& model, const PolicyFactory& policy) {
  const auto generation = model.Start(kPrompt, Greedy(24, 8), policy);
  Generation* one = generation.get();
  std::vector<double> decisions;
  while (!generation->done()) {
    StepTogether(model.transformer, {&one, 1});
    for (const Candidate& candidate : generation->decoder().candidates()) {
      decisions.insert(decisions.end(),
                       {static_cast<double>(candidate.token), candidate.probability});
    }
  }
  return decisions;
}

TEST(ExampleCache, AtFullSizeEqualsNone) {
  for (const char* family : {"llada", "dream"}) {
    TestModel model(TinyModel(family));
    const std::vector<double> exact = Decisions(model, model.Policy("none"));
    EXPECT_EQ(Decisions(model, Near("1000000")), exact) << family;
    EXPECT_NE(Decisions(model, Near("0")), exact) << family;  // else nothing was compared
  }
}

TEST(ExampleCache, RecomputesTheBlockAndItsNeighbours) {
  TestModel model(TinyModel("llada"));
  const auto generation = model.Start(kPrompt, Greedy(24, 8), Near("2"));
  Generation* one = generation.get();
  generation->state().trace = true;
  StepTogether(model.transformer, {&one, 1});
  EXPECT_EQ(generation->state().traced_rows[0], RowSet::All(30));
  StepTogether(model.transformer, {&one, 1});
  EXPECT_EQ(generation->state().traced_rows[0], RowSet::Range(6 - 2, 6 + 8 + 2));
}

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ExampleCache, IsWhatTheDocumentShows) {
  const std::string code = TextOf(SPA_TEST_DATA "/../policies/example_cache.h");
  ASSERT_FALSE(code.empty());
  const std::string document = TextOf(SPA_DOCS_DIR "/adding-a-cache.md");
  EXPECT_NE(document.find("```cpp\n" + code + "```\n"), std::string::npos)
      << "docs/adding-a-cache.md and tests/policies/example_cache.h differ";
}

}  // namespace
}  // namespace spa
