// The models of the repository, decoded in blocks by PyTorch (tools/minidlm) and by the engine:
// token for token.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/runner.h"
#include "tests/thinned.h"

namespace spa {
namespace {

using nlohmann::json;

class MiniModel : public testing::TestWithParam<const char*> {};

TEST_P(MiniModel, GreedyDecodingEqualsPyTorch) {
  const std::string name = GetParam();
  Engine engine({.model = SPA_MODELS_DIR "/" + name + ".gguf",
                 .threads = 2,
                 .kv_type = KvType::kF32,
                 .progress = {}});
  const SharedCache none = engine.PrepareCache({});
  std::ifstream in(SPA_TEST_DATA "/" + name + "_golden.jsonl");
  size_t cases = 0;
  for (std::string line; std::getline(in, line); ++cases) {
    if (!RunsCase(cases)) continue;
    const json golden = json::parse(line);
    DecodeOptions options = engine.DefaultDecodeOptions();
    EXPECT_EQ(options.gen_length, golden["gen_length"].get<size_t>());
    options.block_length = golden["block_length"];
    options.first_threshold.reset();
    const auto generation = RunAlone(engine, {golden["prompt_ids"], options, none});
    EXPECT_EQ(CanvasIds(generation->decoder()), golden["output_ids"].get<std::vector<TokenId>>())
        << golden["task"];
  }
  EXPECT_GE(cases, 18u);
}

INSTANTIATE_TEST_SUITE_P(Both, MiniModel, testing::Values("minillada", "minidream"));

TEST(MiniModels, ChatTemplateGivesThePromptTheyWereTrainedOn) {
  Engine engine({});
  std::ifstream in(SPA_TEST_DATA "/minillada_golden.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(in, line));
  const json golden = json::parse(line);
  Prompt prompt;
  prompt.messages.push_back({"user", golden["question"].get<std::string>()});
  EXPECT_EQ(engine.Encode(prompt), golden["prompt_ids"].get<std::vector<TokenId>>());
}

}  // namespace
}  // namespace spa
