// The caches against the answers of their authors' own programs, token for token. docs/caches.md
// says how the files were made.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/test_model.h"

namespace spa {
namespace {

using nlohmann::json;

class Oracle : public testing::TestWithParam<const char*> {};

TEST_P(Oracle, SameTokensAsTheAuthorsCode) {
  TestModel model(SPA_TEST_DATA "/mini.gguf");
  std::ifstream in(std::string(SPA_TEST_DATA "/oracle_") + GetParam() + ".jsonl");
  size_t cases = 0;
  for (std::string line; std::getline(in, line); ++cases) {
    const json answer = json::parse(line);
    DecodeOptions options = Greedy(answer["gen_length"], answer["block_length"]);
    options.steps = answer["steps"];
    if (answer.contains("threshold")) options.threshold = answer["threshold"].get<double>();
    const PolicyFactory policy = model.Policy(answer["cache"], answer["options"]);
    EXPECT_EQ(model.Generate(answer["prompt_ids"], options, policy),
              answer["output_ids"].get<std::vector<TokenId>>())
        << answer["cache"] << " " << answer["options"] << " case " << cases;
  }
  EXPECT_GE(cases, 20u);
}

INSTANTIATE_TEST_SUITE_P(Caches, Oracle, testing::Values("dllm", "fast", "dkv", "spa"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace spa
