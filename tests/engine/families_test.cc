// Every family's logits against those of its makers' code (tests/data/families), from a Hugging
// Face folder, from its conversion and, where there is one, from a GGUF file that others wrote.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/engine.h"
#include "writer/write_model.h"

namespace spa {
namespace {

using nlohmann::json;

const std::filesystem::path kFamilies = SPA_TEST_DATA "/families";

std::filesystem::path TemporaryFolder() {
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("families_test." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  return folder;
}

std::vector<float> ReadFloats(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<float> values(std::filesystem::file_size(path) / sizeof(float));
  in.read(reinterpret_cast<char*>(values.data()),
          static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

Engine::DensePass PassOf(const json& forward) {
  Engine::DensePass pass;
  pass.attention.emplace();
  if (!forward.contains("block_length")) return pass;
  pass.attention->kind = AttentionKind::kBlocks;
  pass.attention->block_length = forward["block_length"];
  if (forward.contains("prompt_length")) {
    pass.attention->origin = BlockOrigin::kPromptEnd;
    pass.prompt_length = forward["prompt_length"];
  }
  return pass;
}

void ExpectLogits(Engine& engine, const json& forward, const std::vector<float>& expected,
                  const std::string& what) {
  const std::vector<TokenId> ids = forward["ids"];
  const size_t vocab = engine.config().vocab_rows;
  ASSERT_EQ(expected.size(), ids.size() * vocab) << what;
  std::vector<float> actual(expected.size());
  engine.DenseLogits(
      ids,
      [&](size_t row, std::span<const float> logits) {
        std::ranges::copy(logits, actual.begin() + static_cast<ptrdiff_t>(row * vocab));
      },
      PassOf(forward));
  double sum = 0.0, squares = 0.0, worst = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    sum += expected[i];
    squares += static_cast<double>(expected[i]) * expected[i];
    worst = std::max(worst, std::abs(static_cast<double>(expected[i]) - actual[i]));
  }
  const auto n = static_cast<double>(expected.size());
  const double deviation = std::sqrt(squares / n - sum / n * (sum / n));
  EXPECT_LT(worst / deviation, 2e-4) << what;
}

class FamilyLogits : public testing::TestWithParam<std::string> {};

TEST_P(FamilyLogits, MatchTheMakers) {
  const std::filesystem::path folder = kFamilies / GetParam();
  std::ifstream in(folder / "forward.json");
  const json golden = json::parse(in);
  const auto converted = TemporaryFolder() / (GetParam() + ".gguf");
  {
    ThreadPool pool(2);
    WriteModel(ModelFile::Open(folder / "model"), converted, {}, pool);
  }
  std::vector<std::filesystem::path> models = {folder / "model", converted};
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf") models.push_back(entry.path());
  }
  for (const auto& model : models) {
    Engine engine({.model = model, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
    for (const json& forward : golden["cases"]) {
      ExpectLogits(engine, forward, ReadFloats(folder / forward["file"].get<std::string>()),
                   model.string() + ": " + forward["name"].get<std::string>());
    }
  }
  // The folder and its conversion describe the same model.
  const ModelConfig a = ModelFile::Open(models[0]).config(),
                    b = ModelFile::Open(converted).config();
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(a.mask_id, b.mask_id);
  EXPECT_EQ(a.stop_ids, b.stop_ids);
  EXPECT_EQ(a.pad_id, b.pad_id);
  EXPECT_EQ(a.expand_id, b.expand_id);
  EXPECT_EQ(a.attention.kind, b.attention.kind);
  EXPECT_EQ(a.attention.block_length, b.attention.block_length);
  EXPECT_EQ(a.logit_shift, b.logit_shift);
  EXPECT_EQ(a.decode.gen_length, b.decode.gen_length);
  EXPECT_EQ(a.decode.block_length, b.decode.block_length);
  std::filesystem::remove(converted);
}

INSTANTIATE_TEST_SUITE_P(All, FamilyLogits,
                         testing::Values("a2d-qwen2", "a2d-qwen3", "dreamon", "fast-dllm-v2",
                                         "llada-moe", "llada2", "rnd1", "sdar"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Copies a family's folder, and lets `damage` change the bytes of its weights.
template <typename Damage>
std::filesystem::path DamagedCopy(const std::string& family, const Damage& damage) {
  const auto copy = TemporaryFolder() / "damaged";
  std::filesystem::remove_all(copy);
  std::filesystem::copy(kFamilies / family / "model", copy);
  const auto path = copy / "model.safetensors";
  std::ifstream in(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  damage(bytes);
  std::ofstream(path, std::ios::binary) << bytes;
  return copy;
}

// The first byte of a tensor.
size_t OffsetOf(const std::string& bytes, const std::string& tensor) {
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const json table = json::parse(bytes.substr(8, header));
  return 8 + header + table[tensor]["data_offsets"][0].get<size_t>();
}

std::string LoadError(const std::filesystem::path& model) {
  try {
    Engine engine({.model = model, .threads = 1, .kv_type = KvType::kF32, .progress = {}});
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(DamagedExperts, AreRefusedInOneLine) {
  const std::string nan = {'\xc0', '\x7f'};  // bfloat16
  for (const char* tensor :
       {"model.layers.1.mlp.gate.weight", "model.layers.2.mlp.experts.5.up_proj.weight"}) {
    const std::string message = LoadError(DamagedCopy(
        "rnd1", [&](std::string& bytes) { bytes.replace(OffsetOf(bytes, tensor) + 64, 2, nan); }));
    EXPECT_NE(message.find(tensor), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  // One expert fewer than the config says.
  const std::string message = LoadError(DamagedCopy("rnd1", [](std::string& bytes) {
    const std::string name = "model.layers.0.mlp.experts.7.down_proj.weight";
    bytes.replace(bytes.find(name), name.size(), "model.layers.0.mlp.experts.8.down_proj.weight");
  }));
  EXPECT_NE(message.find("experts.7.down_proj"), std::string::npos) << message;
}

}  // namespace
}  // namespace spa
