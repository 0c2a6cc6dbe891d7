// The model of tests/data decoded by PyTorch (tools/minidlm) and by the engine: token for token.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/test_model.h"
#include "tests/thinned.h"

namespace spa {
namespace {

using nlohmann::json;

std::vector<json> ReadLines(const std::string& path) {
  std::ifstream in(path);
  std::vector<json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

const std::string kModel = SPA_TEST_DATA "/mini.gguf";

TEST(Golden, GreedyDecodingEqualsPyTorch) {
  TestModel model(kModel);
  const auto cases = ReadLines(SPA_TEST_DATA "/minidlm_golden.jsonl");
  ASSERT_GE(cases.size(), 10u);
  for (size_t i = 0; i < cases.size(); ++i) {
    if (!RunsCase(i)) continue;
    const json& golden = cases[i];
    const auto options = Greedy(golden["gen_length"], golden["block_length"]);
    EXPECT_EQ(model.Generate(golden["prompt_ids"], options, model.Policy("none")),
              golden["output_ids"].get<std::vector<TokenId>>());
  }
}

TEST(Golden, AnswersDoNotDependOnBatchOrThreads) {
  const auto cases = ReadLines(SPA_TEST_DATA "/minidlm_golden.jsonl");
  TestModel one(kModel, 1), two(kModel, 2);
  for (const char* cache : {"none", "spa"}) {
    std::vector<std::unique_ptr<Generation>> together;
    std::vector<std::vector<TokenId>> alone;
    for (size_t i = 0; i < 7; ++i) {
      // Different lengths, blocks and sampled ones beside greedy ones.
      DecodeOptions options = Greedy(cases[i]["gen_length"], cases[i]["block_length"]);
      options.temperature = i % 2 == 0 ? 0.0 : 0.7;
      options.seed = i;
      alone.push_back(one.Generate(cases[i]["prompt_ids"], options, one.Policy(cache)));
      together.push_back(two.Start(cases[i]["prompt_ids"], options, two.Policy(cache)));
    }
    two.Finish(together);
    for (size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(TestModel::Answer(*together[i]), alone[i]) << cache << " " << i;
    }
  }
}

// What guidance settles first, worked out from two dense passes: the canvas with its prompt, and
// with masks in its place.
TEST(Golden, GuidanceIsTheReferencesFormula) {
  TestModel model(kModel);
  const auto cases = ReadLines(SPA_TEST_DATA "/minidlm_golden.jsonl");
  const std::vector<TokenId> prompt = cases[0]["prompt_ids"];
  const TokenId mask = model.file.config().mask_id;
  const auto dense_logits = [&](std::vector<TokenId> ids) {
    ids.resize(prompt.size() + 32, mask);
    SequenceState state(model.file.config(), ids.size(), 0, KvType::kF32, model.Policy("none")());
    const std::vector<uint8_t> masked(ids.size(), 0);
    SequenceStep step{&state, {}};
    step.input.ids = ids;
    step.input.masked = masked;
    step.input.visible = RowSet::All(ids.size());
    step.input.wanted = RowSet::Range(prompt.size(), ids.size());
    std::vector<std::vector<float>> logits(32);
    model.transformer.Step({&step, 1}, [&](size_t, uint32_t row, std::span<float> values) {
      logits[row - prompt.size()].assign(values.begin(), values.end());
    });
    return logits;
  };
  const auto conditional = dense_logits(prompt);
  const auto unconditional = dense_logits(std::vector<TokenId>(prompt.size(), mask));
  for (const double scale : {0.5, 2.0}) {
    size_t surest = 0;
    TokenId token = 0;
    double best = -1.0;
    for (size_t i = 0; i < 32; ++i) {
      std::vector<float> row(conditional[i].size());
      for (size_t id = 0; id < row.size(); ++id) {
        row[id] = unconditional[i][id] +
                  static_cast<float>(scale + 1.0) * (conditional[i][id] - unconditional[i][id]);
      }
      row[static_cast<size_t>(mask)] = -1e30f;
      const auto top = std::ranges::max_element(row);
      double sum = 0.0;
      for (const float logit : row) sum += std::exp(static_cast<double>(logit - *top));
      if (1.0 / sum > best) {
        best = 1.0 / sum;
        surest = i;
        token = static_cast<TokenId>(top - row.begin());
      }
    }
    for (const char* cache : {"none", "spa"}) {
      DecodeOptions options = Greedy(32, 32);
      options.cfg_scale = scale;
      const auto guided = model.Start(prompt, options, model.Policy(cache));
      ASSERT_EQ(guided->num_states(), 2u);
      Generation* one = guided.get();
      StepTogether(model.transformer, {&one, 1});
      const auto answer = TestModel::Answer(*guided);
      for (size_t i = 0; i < 32; ++i) EXPECT_EQ(answer[i], i == surest ? token : mask) << i;
    }
  }
  DecodeOptions options = Greedy(32, 32);
  options.cfg_scale = 0.0;
  EXPECT_EQ(model.Start(prompt, options, model.Policy("none"))->num_states(), 1u);
}

// A cache with its full budget changes nothing under guidance either.
TEST(Golden, GuidanceWithAFullBudgetIsGuidanceWithoutACache) {
  TestModel model(kModel);
  const std::vector<TokenId> prompt =
      ReadLines(SPA_TEST_DATA "/minidlm_golden.jsonl")[0]["prompt_ids"];
  DecodeOptions options = Greedy(32, 8);
  options.cfg_scale = 1.0;
  const auto plain = model.Generate(prompt, options, model.Policy("none"));
  EXPECT_EQ(
      model.Generate(prompt, options, model.Policy("spa", {"rho=1", "min-drift=0", "scope=all"})),
      plain);
}

}  // namespace
}  // namespace spa
