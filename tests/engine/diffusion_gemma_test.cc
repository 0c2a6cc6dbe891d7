// DiffusionGemma: the logits of its makers' code, one recorded run of their decoder, and the laws.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "decode/commit_rule.h"
#include "engine/runner.h"
#include "writer/write_model.h"

namespace spa {
namespace {

using nlohmann::json;

const std::filesystem::path kFolder = SPA_TEST_DATA "/families/diffusion-gemma";

json ReadJson(const char* name) {
  std::ifstream in(kFolder / name);
  return json::parse(in);
}

Engine Open(const std::filesystem::path& model, size_t threads = 2) {
  return Engine({.model = model, .threads = threads, .kv_type = KvType::kF32, .progress = {}});
}

// A file that goes with the test.
class Converted {
 public:
  Converted()
      : path(std::filesystem::path(testing::TempDir()) /
             ("gemma." + std::to_string(getpid()) + ".gguf")) {
    ThreadPool pool(2);
    WriteModel(ModelFile::Open(kFolder / "model"), path, {}, pool);
  }
  ~Converted() { std::filesystem::remove(path); }
  const std::filesystem::path path;
};

std::vector<TokenId> Joined(std::vector<TokenId> ids, const std::vector<TokenId>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

// Logits of a canvas behind a text; `before`: those of the step before, divided by its temperature.
Mat<float> Logits(Engine& engine, const std::vector<TokenId>& text,
                  const std::vector<TokenId>& canvas, Mat<float>* before) {
  const size_t vocab = engine.config().vocab_rows;
  Mat<float> logits(canvas.size(), vocab), expected;
  Engine::DensePass pass;
  pass.prompt_length = text.size();
  if (before != nullptr) {
    expected.Resize(canvas.size(), engine.config().model_dim);
    for (size_t i = 0; i < canvas.size(); ++i) {
      engine.weights().EmbedMean({before->Row(i), vocab}, expected.Row(i));
    }
    pass.expected = expected.View();
  }
  engine.DenseLogits(
      Joined(text, canvas),
      [&](size_t row, std::span<const float> values) {
        if (row >= text.size()) std::ranges::copy(values, logits.Row(row - text.size()));
      },
      pass);
  return logits;
}

void Divide(Mat<float>& logits, double temperature) {
  for (size_t i = 0; i < logits.rows() * logits.cols(); ++i) {
    logits.data()[i] = static_cast<float>(logits.data()[i] / temperature);
  }
}

void ExpectLogits(const Mat<float>& actual, const std::string& file, const std::string& what) {
  std::ifstream in(kFolder / file, std::ios::binary);
  Mat<float> expected(actual.rows(), actual.cols());
  in.read(reinterpret_cast<char*>(expected.data()),
          static_cast<std::streamsize>(expected.rows() * expected.cols() * sizeof(float)));
  ASSERT_TRUE(in) << what;
  double sum = 0.0, squares = 0.0, worst = 0.0;
  const size_t count = expected.rows() * expected.cols();
  for (size_t i = 0; i < count; ++i) {
    const double value = expected.data()[i];
    sum += value;
    squares += value * value;
    worst = std::max(worst, std::abs(value - actual.data()[i]));
  }
  const double mean = sum / static_cast<double>(count);
  EXPECT_LT(worst / std::sqrt(squares / static_cast<double>(count) - mean * mean), 2e-4) << what;
}

TEST(DiffusionGemma, LogitsMatchTheMakersFromFolderAndGguf) {
  const Converted converted;
  const json cases = ReadJson("forward.json")["cases"];
  for (const auto& model : {kFolder / "model", converted.path}) {
    Engine engine = Open(model);
    Mat<float> first = Logits(engine, cases[0]["prompt"], cases[0]["canvas"], nullptr);
    ExpectLogits(first, cases[0]["file"], model.string());
    Divide(first, 0.6);
    ExpectLogits(Logits(engine, cases[1]["prompt"], cases[1]["canvas"], &first), cases[1]["file"],
                 model.string() + ", self-conditioned");
    ExpectLogits(Logits(engine, cases[2]["prompt"], cases[2]["canvas"], nullptr), cases[2]["file"],
                 model.string() + ", second block");
  }
}

TEST(DiffusionGemma, FolderAndGgufAreOneModel) {
  const Converted converted;
  const ModelConfig a = ModelFile::Open(kFolder / "model").config(),
                    b = ModelFile::Open(converted.path).config();
  EXPECT_EQ(a.layer_shapes, b.layer_shapes);
  EXPECT_EQ(a.attention, b.attention);
  EXPECT_EQ(a.wide_rope_dim, b.wide_rope_dim);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(a.wide_rope_theta, b.wide_rope_theta);
  EXPECT_EQ(a.logit_cap, b.logit_cap);
  EXPECT_EQ(a.stop_ids, b.stop_ids);
  EXPECT_EQ(a.decode.gen_length, b.decode.gen_length);
  EXPECT_EQ(a.decode.block_length, b.decode.block_length);
  EXPECT_EQ(a.mask_id, -1);
  EXPECT_EQ(b.mask_id, -1);
}

// The draws are part of the record; what is accepted, what is likeliest and when it ends follows.
TEST(DiffusionGemma, AcceptsAndEndsAsTheMakersDo) {
  const json record = ReadJson("decode.json"), o = record["options"];
  Engine engine = Open(kFolder / "model");
  std::vector<TokenId> text = record["prompt"];
  Mat<float> before;
  const size_t most = o["max_denoising_steps"];
  std::vector<TokenId> likeliest;
  for (const json& step : record["steps"]) {
    const size_t left = step["steps_remaining"];
    const double temperature =
        o["t_min"].get<double>() + (o["t_max"].get<double>() - o["t_min"].get<double>()) *
                                       static_cast<double>(left) / static_cast<double>(most);
    Mat<float> logits = Logits(engine, text, step["canvas"], left == most ? nullptr : &before);
    Divide(logits, temperature);
    DecodeOptions options;
    options.noise = true;
    options.draw = Draw::kFiltered;
    options.temperature = 1.0;
    options.entropy_bound = o["sampler_config"]["entropy_bound"].get<double>();
    std::vector<Candidate> candidates;
    likeliest.clear();
    double mean = 0.0;
    for (size_t i = 0; i < logits.rows(); ++i) {
      const std::span<float> row{logits.Row(i), logits.cols()};
      likeliest.push_back(static_cast<TokenId>(std::ranges::max_element(row) - row.begin()));
      candidates.push_back(SampleToken(
          row, options, {.mask_id = -1, .fill_id = 0, .stop_ids = {}, .num_tokens = logits.cols()},
          RandomStream(0, 0, i)));
      EXPECT_NEAR(candidates.back().entropy, step["entropy"][i].get<double>(), 1e-4);
      mean += candidates.back().entropy / static_cast<double>(logits.rows());
    }
    EXPECT_EQ(CommitLeastEntropy(candidates, *options.entropy_bound),
              step["accepted"].get<std::vector<size_t>>());
    EXPECT_EQ(likeliest, step["argmax"].get<std::vector<TokenId>>());
    const bool stop = mean < o["confidence_threshold"].get<double>();
    EXPECT_EQ(stop, step["stop"].get<bool>());
    if (stop) text = Joined(text, likeliest);
    before = std::move(logits);
  }
  EXPECT_EQ(text, record["output"].get<std::vector<TokenId>>());
}

GenerationRequest Request(Engine& engine, const char* cache, uint64_t seed) {
  DecodeOptions options = engine.DefaultDecodeOptions();
  options.gen_length = 3 * options.block_length;
  options.steps_per_block = 6;
  options.entropy_bound = 1.0;
  options.stable_entropy = 1.5;
  options.stop = Stop::kNever;
  options.seed = seed;
  return {.prompt = ReadJson("decode.json")["prompt"],
          .decode = options,
          .cache = engine.PrepareCache({.name = cache, .options = {}}),
          .warm_from = nullptr,
          .prefixes = nullptr};
}

std::vector<TokenId> Ids(const Generation& generation) {
  return {generation.decoder().ids().begin(), generation.decoder().ids().end()};
}

// K and V of the text are kept exactly; alone and together, with one thread and with two.
TEST(DiffusionGemma, AnswersDoNotDependOnCacheBatchOrThreads) {
  Engine one = Open(kFolder / "model", 1), two = Open(kFolder / "model", 2);
  std::vector<std::vector<TokenId>> expected;
  for (const uint64_t seed : {1, 2, 3}) {
    const auto none = RunAlone(one, Request(one, "none", seed));
    const auto block = RunAlone(two, Request(two, "block", seed));
    expected.push_back(Ids(*none));
    EXPECT_EQ(Ids(*block), expected.back());
    EXPECT_LT(block->Stats().rows_computed, none->Stats().rows_computed);
  }
  EXPECT_NE(expected[0], expected[1]);
  Runner runner(two);
  std::vector<Generation*> running;
  for (const uint64_t seed : {1, 2, 3}) running.push_back(&runner.Add(Request(two, "block", seed)));
  while (!std::ranges::all_of(running, [](const Generation* g) { return g->done(); })) {
    runner.Step();
  }
  for (size_t i = 0; i < running.size(); ++i) EXPECT_EQ(Ids(*running[i]), expected[i]) << i;
}

TEST(DiffusionGemma, RefusesCachesThatAreNotForIt) {
  Engine engine = Open(kFolder / "model");
  for (const char* cache : {"fast-dual", "dkv-decode", "d2"}) {
    EXPECT_THROW(RunAlone(engine, Request(engine, cache, 1)), Error) << cache;
  }
}

}  // namespace
}  // namespace spa
