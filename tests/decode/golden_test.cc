// The embedded model decoded by PyTorch (tools/minidlm) and by the engine: token for token.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/test_model.h"

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
  for (const json& golden : cases) {
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
    while (true) {
      std::vector<Generation*> running;
      for (const auto& generation : together) {
        if (!generation->done()) running.push_back(generation.get());
      }
      if (running.empty()) break;
      StepTogether(two.transformer, running);
    }
    for (size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(TestModel::Answer(*together[i]), alone[i]) << cache << " " << i;
    }
  }
}

TEST(Golden, GuidanceAtScaleZeroIsOffAndAboveItChangesTheLogits) {
  TestModel model(kModel);
  const auto cases = ReadLines(SPA_TEST_DATA "/minidlm_golden.jsonl");
  DecodeOptions options = Greedy(32, 32);
  options.cfg_scale = 2.0;
  const auto guided = model.Start(cases[0]["prompt_ids"], options, model.Policy("none"));
  EXPECT_EQ(guided->num_states(), 2u);
  Generation* one = guided.get();
  while (!guided->done()) StepTogether(model.transformer, {&one, 1});
  for (const TokenId id : TestModel::Answer(*guided)) EXPECT_NE(id, model.file.config().mask_id);
}

}  // namespace
}  // namespace spa
