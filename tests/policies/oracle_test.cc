// The caches against the answers of their authors' own programs, token for token, and where the
// programs show them, the rows they recompute. docs/caches.md says how the files were made.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/test_model.h"
#include "tests/thinned.h"

namespace spa {
namespace {

using nlohmann::json;

DecodeOptions OptionsOf(const json& answer) {
  DecodeOptions options = Greedy(answer["gen_length"], answer["block_length"]);
  options.steps = answer["steps"];
  if (answer.contains("threshold")) options.threshold = answer["threshold"].get<double>();
  if (answer.contains("slide")) options.slide = Slide::kGreedy;
  if (answer.value("schedule", "") == "time-grid") options.schedule = Schedule::kTimeGrid;
  if (answer.value("order", "") == "entropy") options.order = Order::kEntropy;
  return options;
}

// `rows` are those of each step after the first; from the layer `dense_from` on it ran all. The
// last layer is left out: the engine runs only rows there whose logits are read.
bool SameRows(const json& answer, size_t step, const std::vector<RowSet>& traced) {
  const RowSet rows(answer["rows"].at(step - 1).get<std::vector<uint32_t>>());
  const size_t dense_from = answer.contains("dense_from")
                                ? answer["dense_from"].at(step - 1).get<size_t>()
                                : traced.size();
  const size_t num_rows = answer["prompt_ids"].size() + answer["gen_length"].get<size_t>();
  for (size_t layer = 0; layer + 1 < traced.size(); ++layer) {
    if (traced[layer] != (layer < dense_from ? rows : RowSet::All(num_rows))) return false;
  }
  return true;
}

class Oracle : public testing::TestWithParam<const char*> {};

TEST_P(Oracle, SameAsTheAuthorsCode) {
  std::ifstream in(std::string(SPA_TEST_DATA "/oracle_") + GetParam() + ".jsonl");
  std::map<std::string, TestModel> models;
  size_t cases = 0;
  for (std::string line; std::getline(in, line); ++cases) {
    if (!RunsCase(cases)) continue;
    const json answer = json::parse(line);
    const std::string name = answer.value("model", "mini");
    TestModel& model = models.try_emplace(name, SPA_TEST_DATA "/" + name + ".gguf").first->second;
    const PolicyFactory policy = model.Policy(answer["cache"], answer["options"]);
    const auto generation = model.Start(answer["prompt_ids"], OptionsOf(answer), policy);
    generation->state().trace = true;
    SCOPED_TRACE(fmt::format("{} case {}", answer["options"].dump(), cases));
    for (Generation* one = generation.get(); !one->done();) {
      const size_t step = one->decoder().steps();
      StepTogether(model.transformer, {&one, 1});
      if (!answer.contains("rows") || step == 0) continue;
      const bool same = SameRows(answer, step, generation->state().traced_rows);
      const RowSet& first = generation->state().traced_rows[0];
      EXPECT_TRUE(same) << "step " << step << ", in the first layer rows "
                        << fmt::format("{}", fmt::join(first, " "));
      if (!same) break;
    }
    if (answer.contains("forwards")) {
      EXPECT_EQ(generation->decoder().steps(), answer["forwards"].get<size_t>());
    }
    EXPECT_EQ(TestModel::Answer(*generation), answer["output_ids"].get<std::vector<TokenId>>());
  }
  EXPECT_GE(cases, 20u);
}

INSTANTIATE_TEST_SUITE_P(Caches, Oracle,
                         testing::Values("dllm", "fast", "dkv", "d2", "elastic", "spa",
                                         "spa_threshold", "spa_dream"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace spa
