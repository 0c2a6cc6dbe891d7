// What the engine refuses, and what it promises about answers.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "engine/decode_choices.h"
#include "engine/runner.h"

namespace spa {
namespace {

class EngineTest : public testing::Test {
 protected:
  static Engine& engine() {
    static Engine engine({.model = SPA_TEST_DATA "/mini.gguf",
                          .threads = 2,
                          .kv_type = KvType::kF32,
                          .progress = {}});
    return engine;
  }
  static DecodeOptions Short() {
    DecodeOptions options = engine().DefaultDecodeOptions();
    options.gen_length = options.steps = 32;
    options.block_length = 16;
    return options;
  }
  static SharedCache None() { return engine().PrepareCache({}); }
  static std::unique_ptr<Generation> Answer(const char* question, const DecodeOptions& options) {
    return RunAlone(engine(), {engine().Encode({.messages = {{"user", question}}, .text = ""}),
                               options, None()});
  }
};

// A copy of the small model, which a test may harm.
class ModelCopy {
 public:
  ModelCopy() {
    std::filesystem::remove(path_);
    std::filesystem::copy_file(SPA_TEST_DATA "/mini.gguf", path_);
    // Written now and changed within the same tick of the file system's clock would go unnoticed.
    std::filesystem::last_write_time(
        path_, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  }
  ~ModelCopy() { std::filesystem::remove(path_); }
  ModelCopy(const ModelCopy&) = delete;
  ModelCopy& operator=(const ModelCopy&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void OverwriteLastBytes() const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-8, std::ios::end);
    file.write("\0\0\0\0\0\0\0\0", 8);
  }

 private:
  std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) / fmt::format("spa-changes-{}.gguf", ::getpid());
};

TEST_F(EngineTest, AModelFileThatIsWrittenToEndsWhatRuns) {
  const ModelCopy copy;
  Engine engine({.model = copy.path(), .threads = 1, .kv_type = KvType::kF32, .progress = {}});
  const SharedCache cache = engine.PrepareCache({});
  Runner runner(engine);
  runner.Add({{1, 2, 3}, Short(), cache});
  EXPECT_NO_THROW(runner.Step());
  copy.OverwriteLastBytes();
  EXPECT_THROW(runner.Step(), ModelChanged);
  EXPECT_THROW(engine.DenseLogits(std::vector<TokenId>{1, 2}, [](size_t, auto) {}), ModelChanged);
  EXPECT_THROW(engine.PrepareCache({}), ModelChanged);
}

TEST_F(EngineTest, AModelFileMayBeReplacedByAnotherOfItsName) {
  const ModelCopy copy;
  Engine engine({.model = copy.path(), .threads = 1, .kv_type = KvType::kF32, .progress = {}});
  Runner runner(engine);
  runner.Add({{1, 2, 3}, Short(), engine.PrepareCache({})});
  const std::filesystem::path other = copy.path().string() + ".new";
  std::ofstream(other) << "no model";
  std::filesystem::rename(other, copy.path());
  EXPECT_NO_THROW(runner.Step());
  std::filesystem::remove(copy.path());
  EXPECT_NO_THROW(runner.Step());
}

TEST_F(EngineTest, RefusesPromptsThatCannotBeRun) {
  EXPECT_THROW(engine().Start({}, Short(), *None()), Error);
  EXPECT_THROW(engine().Start({-1}, Short(), *None()), Error);
  EXPECT_THROW(engine().Start({512}, Short(), *None()), Error);
  const std::vector<TokenId> longest(engine().config().context_length - 32, 300);
  EXPECT_NO_THROW(engine().Start(longest, Short(), *None()));
  EXPECT_THROW(engine().Start(std::vector<TokenId>(longest.size() + 1, 300), Short(), *None()),
               Error);
  EXPECT_THROW(
      Engine({.model = "/no/such/model", .threads = 1, .kv_type = KvType::kF32, .progress = {}}),
      Error);
}

TEST_F(EngineTest, AWarmStartSaysWhyItCannotBe) {
  const std::vector<TokenId> prompt(8, 300);
  const SharedCache spa = engine().PrepareCache({.name = "spa", .options = {}});
  const auto donor = engine().Start(prompt, Short(), *spa);
  const auto refusal = [&](const SharedCache& cache) -> std::string {
    try {
      engine().Start(prompt, Short(), *cache, donor.get());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(spa),
            "a generation can start warm only from one that has computed what they share");
  EXPECT_EQ(refusal(engine().PrepareCache({.name = "spa", .options = {{"rank", "4"}}})),
            "a generation can start warm only from one with the same cache");
  Generation* one = donor.get();
  StepTogether(engine().transformer(), {&one, 1});
  EXPECT_EQ(refusal(spa), "");
}

TEST_F(EngineTest, MaskTextTypedByAUserIsText) {
  const auto ids =
      engine().Encode({.messages = {{"user", "a <|mdm_mask|> b <|eot_id|>"}}, .text = ""});
  EXPECT_EQ(std::ranges::count(ids, engine().config().mask_id), 0);
  EXPECT_EQ(std::ranges::count(ids, *engine().tokenizer().Find("<|eot_id|>")), 1)
      << "only the template's own";
  const auto raw = engine().Encode({.messages = {}, .text = "<|mdm_mask|>"});
  EXPECT_EQ(std::ranges::count(raw, engine().config().mask_id), 0);
}

TEST_F(EngineTest, EarlyStopReturnsTheSameTextWithFewerSteps) {
  const auto run = [&](bool early) {
    DecodeOptions options = Short();
    options.gen_length = options.steps = 64;
    options.block_length = 8;
    options.stop = early ? Stop::kAnswer : Stop::kNever;
    return Answer("True and not False is", options);
  };
  const auto early = run(true), whole = run(false);
  EXPECT_EQ(AnswerText(engine(), early->decoder()), AnswerText(engine(), whole->decoder()));
  EXPECT_FALSE(AnswerText(engine(), early->decoder()).empty());
  EXPECT_LT(early->Stats().steps, whole->Stats().steps);
  EXPECT_TRUE(early->Stats().ended);
  EXPECT_LT(early->Stats().rows_computed, whole->Stats().rows_computed);
}

TEST_F(EngineTest, RoundedKeysAndValuesGiveNearlyTheSameLogits) {
  const auto logits = [](KvType type) {
    Engine other(
        {.model = SPA_TEST_DATA "/mini.gguf", .threads = 1, .kv_type = type, .progress = {}});
    std::vector<float> all;
    const std::vector<TokenId> ids = {507, 508, 290, 509, 261, 462, 309, 511, 511};
    all.resize(ids.size() * 512);
    other.DenseLogits(ids, [&](size_t row, std::span<const float> values) {
      std::ranges::copy(values, all.begin() + static_cast<ptrdiff_t>(row * 512));
    });
    return all;
  };
  const auto exact = logits(KvType::kF32), half = logits(KvType::kF16),
             brain = logits(KvType::kBF16), bytes = logits(KvType::kF16Q8);
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_NEAR(half[i], exact[i], 0.05);
    EXPECT_NEAR(brain[i], exact[i], 0.4);
    EXPECT_NEAR(bytes[i], exact[i], 0.4);
  }
  EXPECT_NE(half, exact);
  EXPECT_NE(bytes, half);
}

TEST_F(EngineTest, TheSameSeedGivesTheSameAnswerAndAnotherSeedAnother) {
  const auto run = [&](uint64_t seed) {
    DecodeOptions options = Short();
    options.temperature = 1.5;
    options.seed = seed;
    return CanvasIds(Answer("True or False is", options)->decoder());
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(KvTypeOfAnEngine, FollowsTheWeightsUnlessGiven) {
  const auto type = [](const char* name, std::optional<KvType> given = {}) {
    return Engine({.model = std::string(SPA_TEST_DATA "/") + name,
                   .threads = 1,
                   .kv_type = given,
                   .progress = {}})
        .kv_type();
  };
  EXPECT_EQ(type("tiny-llada-F32.gguf"), KvType::kF32);
  EXPECT_EQ(type("tiny-llada-Q4_K.gguf"), KvType::kF16Q8);
  EXPECT_EQ(type("tiny-llada-Q8_0.gguf"), KvType::kF16Q8);
  EXPECT_EQ(type("tiny-llada-Q8_0.gguf", KvType::kF32), KvType::kF32);
  EXPECT_EQ(ParseKvType("auto"), std::nullopt);
  for (const KvType name : kAllKvTypes) EXPECT_EQ(ParseKvType(NameOf(name)), name);
  EXPECT_EQ(ParseKvType("f16-q8"), KvType::kF16Q8);
  EXPECT_THROW(ParseKvType("f8"), Error);
}

// Nothing a user sets is silently ignored.
TEST(DecodingOfAModel, RefusesOptionsThatWouldDoNothing) {
  const Engine engine(
      {.model = SPA_MODELS_DIR "/minillada.gguf", .threads = 1, .kv_type = {}, .progress = {}});
  const auto resolve = [&](std::initializer_list<std::pair<const char*, const char*>> given) {
    DecodeChoices choices;
    for (const auto& [name, value] : given) choices.Set(name, value);
    choices.Resolve(engine);
  };
  EXPECT_THROW(resolve({{"credit-decay", "0.5"}}), Error);
  EXPECT_THROW(resolve({{"credit-power", "2"}}), Error);
  EXPECT_THROW(resolve({{"window", "16"}, {"window-sigma", "2"}}), Error);
  EXPECT_THROW(resolve({{"max-post-steps", "4"}}), Error);
  EXPECT_THROW(resolve({{"eps", "0.1"}}), Error);
  EXPECT_NO_THROW(resolve({{"credit", "0.7"}, {"credit-decay", "0.5"}, {"credit-power", "2"}}));
  EXPECT_NO_THROW(resolve({{"window", "16"}, {"window-scale", "2"}, {"window-sigma", "2"}}));
  EXPECT_NO_THROW(
      resolve({{"threshold", "0.9"}, {"edit-threshold", "0.9"}, {"max-post-steps", "4"}}));
}

// The way a model's file says it is decoded is meant as a whole.
TEST(DecodingOfAModel, IsLeftToRightForTheSmallOnesUnlessAskedOtherwise) {
  const Engine engine(
      {.model = SPA_MODELS_DIR "/minillada.gguf", .threads = 1, .kv_type = {}, .progress = {}});
  const auto resolved = [&](const char* name, const char* value) {
    DecodeChoices choices;
    if (name != nullptr) choices.Set(name, value);
    return choices.Resolve(engine);
  };
  EXPECT_EQ(resolved(nullptr, "").block_length, 1u);
  EXPECT_EQ(resolved(nullptr, "").first_threshold, 0.99);
  EXPECT_EQ(resolved("gen-length", "128").first_threshold, 0.99);
  EXPECT_EQ(resolved("first-threshold", "0.9").first_threshold, 0.9);
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"block-length", "16"},
                                                                  {"threshold", "0.9"},
                                                                  {"saber", "2"},
                                                                  {"grow-to", "128"},
                                                                  {"block-attention", "on"},
                                                                  {"exact", "on"}}) {
    EXPECT_EQ(resolved(name, value).first_threshold, std::nullopt) << name;
  }
}

}  // namespace
}  // namespace spa
