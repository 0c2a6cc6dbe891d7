// The public interface gives what the engine gives, and errors as values.
#include <gtest/gtest.h>

#include <algorithm>

#include "api/sized_struct.h"
#include "base/error.h"
#include "engine/runner.h"
#include "spa/spa.h"

namespace spa {
namespace {

constexpr const char* kQuestion = "not ( True and False ) or False is";
constexpr const char* kModel = SPA_TEST_DATA "/mini.gguf";

Result<Model> LoadMini() { return Model::Load(kModel, 2); }

TEST(PublicApi, AnswersAsTheEngineDoes) {
  auto model = LoadMini();
  ASSERT_TRUE(model) << model.error();
  Engine engine({.model = kModel, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
  for (const char* cache : {"none", "spa", "spa:rank=8:scope=gen", "fast-dual"}) {
    const auto answer = model->Ask(kQuestion, {.options = "gen-length=32 block-length=16",
                                               .cache = cache,
                                               .policy = nullptr,
                                               .on_step = {}});
    ASSERT_TRUE(answer) << answer.error();
    DecodeOptions options = engine.DefaultDecodeOptions();
    options.gen_length = options.steps = 32;
    options.block_length = 16;
    const auto generation =
        RunAlone(engine, {engine.Encode({.messages = {{"user", kQuestion}}, .text = {}}), options,
                          engine.PrepareCache(ParseCacheSpec(cache))});
    EXPECT_EQ(answer->ids, CanvasIds(generation->decoder())) << cache;
    EXPECT_EQ(answer->text, AnswerText(engine, generation->decoder()));
    EXPECT_EQ(answer->steps, generation->Stats().steps);
  }
}

TEST(PublicApi, FramesShowTheCanvasAndCanStopIt) {
  auto model = LoadMini();
  size_t steps = 0, settled = 0;
  GenerateOptions options;
  options.options = "gen-length=16 block-length=16 early-stop=off";
  options.on_step = [&](const Frame& frame) {
    EXPECT_EQ(frame.step, ++steps);
    EXPECT_EQ(frame.ids.size(), 16u);
    const auto now = static_cast<size_t>(std::ranges::count(frame.settled, true));
    EXPECT_GT(now, settled);
    settled = now;
    return steps < 5;
  };
  const auto answer = model->Ask(kQuestion, options);
  EXPECT_FALSE(answer);
  EXPECT_EQ(answer.error(), "stopped by a callback");
  EXPECT_EQ(steps, 5u);
}

TEST(PublicApi, LogitsAreTheDensePass) {
  auto model = LoadMini();
  const std::vector<int32_t> ids = {507, 508, 290, 509, 261};
  const auto logits = model->Logits(ids);
  ASSERT_TRUE(logits) << logits.error();
  Engine engine({.model = kModel, .threads = 1, .kv_type = KvType::kF32, .progress = {}});
  const size_t vocab = model->vocab_size();
  engine.DenseLogits(ids, [&](size_t row, std::span<const float> values) {
    EXPECT_TRUE(std::ranges::equal(values, std::span(*logits).subspan(row * vocab, vocab))) << row;
  });
}

TEST(PublicApi, ErrorsAreValues) {
  EXPECT_NE(Model::Load("/no/such/model").error().find("no model at"), std::string::npos);
  auto model = LoadMini();
  EXPECT_NE(
      model->Ask("x", {.options = "gen-lenght=8", .cache = {}, .policy = nullptr, .on_step = {}})
          .error()
          .find("did you mean 'gen-length'"),
      std::string::npos);
  EXPECT_NE(model->Ask("x", {.options = {}, .cache = "spar", .policy = nullptr, .on_step = {}})
                .error()
                .find("did you mean 'spa'"),
            std::string::npos);
  EXPECT_FALSE(model->Generate({}));
  EXPECT_FALSE(model->Generate({-5}));
  EXPECT_FALSE(model->Logits({100000000}));
}

// Fast-dLLM's dual cache, written against the public interface.
struct Dual {
  std::vector<uint32_t> rows;
  static int Begin(void* state, const spa_step* step, spa_rows* out) {
    auto& rows = static_cast<Dual*>(state)->rows;
    rows.clear();
    for (uint32_t row = 0; row < step->num_rows; ++row) {
      const bool in_block = row >= step->block_begin && row < step->block_end;
      if (in_block || step->step_in_block == 0) rows.push_back(row);
    }
    *out = {rows.data(), rows.size()};
    return 0;
  }
  static int Plan(void* state, const spa_layer*, spa_rows* out) {
    auto& rows = static_cast<Dual*>(state)->rows;
    *out = {rows.data(), rows.size()};
    return 0;
  }
};

TEST(PublicApi, ACacheOfOnesOwnIsTheBuiltInOne) {
  auto model = LoadMini();
  spa_policy policy = {};
  policy.size = sizeof(policy);
  policy.create = [](void*) -> void* { return new Dual; };
  policy.destroy = [](void* state) { delete static_cast<Dual*>(state); };
  policy.begin_step = Dual::Begin;
  policy.plan_layer = Dual::Plan;
  const std::string options = "gen-length=32 block-length=8";
  const auto own = model->Ask(kQuestion, {options, {}, &policy, {}});
  const auto built_in = model->Ask(kQuestion, {options, "fast-dual", nullptr, {}});
  ASSERT_TRUE(own) << own.error();
  EXPECT_EQ(own->ids, built_in->ids);
  EXPECT_EQ(own->rows_fraction, built_in->rows_fraction);

  // Missing rows, a callback that gives up, a struct of the wrong size: reported, not run.
  policy.plan_layer = [](void*, const spa_layer*, spa_rows* out) {
    static const uint32_t kFar[] = {1000000};
    *out = {kFar, 1};
    return 0;
  };
  EXPECT_NE(model->Ask(kQuestion, {options, {}, &policy, {}}).error().find("not there"),
            std::string::npos);
  policy.plan_layer = [](void*, const spa_layer*, spa_rows*) { return 1; };
  EXPECT_EQ(model->Ask(kQuestion, {options, {}, &policy, {}}).error(), "stopped by a callback");
  policy.size = 1;
  EXPECT_FALSE(model->Ask(kQuestion, {options, {}, &policy, {}}));
}

struct First {
  size_t size;
  int a;
};
struct Second {
  size_t size;
  int a, b;
  const char* c;
};

TEST(PublicApi, AStructOfAnOlderCallerIsFilledWithZeros) {
  constexpr size_t kFirst = offsetof(First, a) + sizeof(int);
  Second given = {.size = kFirst, .a = 5, .b = 6, .c = "not there yet"};
  const Second copy = CopySized(&given, kFirst, "options");
  EXPECT_EQ(copy.a, 5);
  EXPECT_EQ(copy.b, 0);
  EXPECT_EQ(copy.c, nullptr);
  for (const size_t wrong : {size_t{0}, kFirst - 1, size_t{1} << 40}) {
    given.size = wrong;
    EXPECT_THROW(CopySized(&given, kFirst, "options"), Error) << wrong;
  }
}

TEST(PublicApi, ANewerCallerMaySetNothingThatIsNotKnown) {
  spa_model* model = nullptr;
  ASSERT_EQ(spa_model_load(kModel, 1, &model), SPA_OK);
  struct {
    spa_generate_options known;
    size_t newer;
  } given = {};
  given.known.size = sizeof(given);
  given.known.options = "gen-length=16 block-length=16";
  const int32_t prompt[] = {507, 508};
  spa_result* result = nullptr;
  EXPECT_EQ(spa_generate(model, prompt, 2, &given.known, &result), SPA_OK) << spa_last_error();
  spa_result_free(result);
  given.newer = 1;
  EXPECT_EQ(spa_generate(model, prompt, 2, &given.known, &result), SPA_INVALID);
  EXPECT_STREQ(spa_last_error(),
               "spa_generate_options sets a field that is newer than this library");
  spa_model_free(model);
}

TEST(PublicApi, ExactDecodingRefusesWhatItWouldIgnore) {
  auto model = LoadMini();
  const auto error = [&](const std::string& options, const std::string& cache) {
    const auto answer = model->Ask(kQuestion, {options, cache, nullptr, {}});
    return answer ? "" : answer.error();
  };
  const std::string exact = "gen-length=16 block-length=16 exact=on";
  EXPECT_EQ(error(exact, ""), "");
  EXPECT_EQ(error(exact, "none"), "");
  EXPECT_EQ(error(exact, "spa"), "exact decoding uses no cache: leave out cache and policy");
  EXPECT_EQ(error(exact + " steps-per-block=4", ""),
            "exact decoding settles one token per step: leave out steps-per-block");
  EXPECT_EQ(error(exact + " threshold=0.9 edit-threshold=0.5", ""),
            "exact decoding settles one token per step: leave out threshold");
}

}  // namespace
}  // namespace spa
