// Laws that hold for every way of decoding: with a full budget a cache changes nothing; an answer
// depends neither on what runs beside it nor on the number of threads.
#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <sstream>

#include "tests/test_model.h"
#include "tests/tiny_model.h"

namespace spa {
namespace {

struct Method {
  const char* name;
  std::function<void(DecodeOptions&)> set;
};

const std::vector<Method>& Methods() {
  static const std::vector<Method> methods = {
      {"one token per step", [](DecodeOptions&) {}},
      {"threshold", [](DecodeOptions& o) { o.threshold = 0.5; }},
      {"loosened threshold", [](DecodeOptions& o) { o.threshold = 0.5, o.loosen = 0.6; }},
      {"factor", [](DecodeOptions& o) { o.factor = 1.0; }},
      {"entropy bound", [](DecodeOptions& o) { o.entropy_bound = 0.5; }},
      {"hierarchical", [](DecodeOptions& o) { o.hierarchical = 0.2; }},
      {"klass", [](DecodeOptions& o) { o.threshold = 0.4, o.klass = 0.05; }},
      {"credit", [](DecodeOptions& o) { o.threshold = 0.5, o.credit = 0.7; }},
      {"prophet", [](DecodeOptions& o) { o.prophet = true; }},
      {"window", [](DecodeOptions& o) { o.threshold = 0.5, o.window = 5; }},
      {"no window", [](DecodeOptions& o) { o.window = 0; }},
      {"dpad", [](DecodeOptions& o) { o.threshold = 0.5, o.window = 12, o.window_scale = 2.0; }},
      {"greedy slide", [](DecodeOptions& o) { o.threshold = 0.5, o.slide = Slide::kGreedy; }},
      {"constant slide", [](DecodeOptions& o) { o.slide = Slide::kConst; }},
      {"sliding window",
       [](DecodeOptions& o) { o.threshold = 0.5, o.slide = Slide::kGreedy, o.window = 6; }},
  };
  return methods;
}

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::vector<TokenId> Prompt(const TestModel& model, size_t length, size_t seed) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < length; ++i) {
    ids.push_back(
        static_cast<TokenId>(2 + (i * 7 + seed * 5) % (model.file.config().vocab_rows / 2)));
  }
  return ids;
}

// The trained mini model, and a random one whose logits are shifted.
std::vector<std::string> Models() { return {SPA_TEST_DATA "/mini.gguf", TinyModel("dream")}; }

DecodeOptions With(const Method& method) {
  DecodeOptions options = Greedy(32, 8);
  method.set(options);
  ValidateDecodeOptions(options);
  return options;
}

TEST(Methods, AFullBudgetChangesNothing) {
  for (const std::string& path : Models()) {
    TestModel model(path);
    const std::vector<TokenId> prompt = Prompt(model, 11, 1);
    for (const Method& method : Methods()) {
      const DecodeOptions options = With(method);
      const auto exact = model.Generate(prompt, options, model.Policy("none"));
      for (const CacheInfo& cache : Caches()) {
        if (cache.name == "block") continue;  // for models with block attention
        EXPECT_EQ(
            model.Generate(prompt, options, model.Policy(cache.name, Words(cache.full_options))),
            exact)
            << path << ", " << method.name << ", " << cache.name;
      }
    }
  }
}

// With their default budgets caches are approximations, but every method must run with each.
TEST(Methods, EveryMethodRunsWithEveryCache) {
  for (const std::string& path : Models()) {
    TestModel model(path);
    const TokenId mask = model.file.config().mask_id;
    for (const Method& method : Methods()) {
      for (const CacheInfo& cache : Caches()) {
        if (cache.name == "block") continue;
        const auto answer =
            model.Generate(Prompt(model, 9, 2), With(method), model.Policy(cache.name));
        EXPECT_EQ(std::ranges::count(answer, mask), 0)
            << path << ", " << method.name << ", " << cache.name;
      }
    }
  }
}

TEST(Methods, AnswersDoNotDependOnBatchOrThreads) {
  for (const std::string& path : Models()) {
    TestModel one(path, 1), two(path, 2);
    for (const char* cache : {"none", "spa"}) {
      std::vector<std::unique_ptr<Generation>> together;
      std::vector<std::vector<TokenId>> alone;
      for (size_t i = 0; i < Methods().size(); ++i) {
        const DecodeOptions options = With(Methods()[i]);
        const std::vector<TokenId> prompt = Prompt(one, 5 + i % 7, i);
        alone.push_back(one.Generate(prompt, options, one.Policy(cache)));
        together.push_back(two.Start(prompt, options, two.Policy(cache)));
      }
      while (true) {
        std::vector<Generation*> running;
        for (const auto& generation : together) {
          if (!generation->done()) running.push_back(generation.get());
        }
        if (running.empty()) break;
        StepTogether(two.transformer, running);
      }
      for (size_t i = 0; i < together.size(); ++i) {
        EXPECT_EQ(TestModel::Answer(*together[i]), alone[i])
            << path << ", " << cache << ", " << Methods()[i].name;
      }
    }
  }
}

}  // namespace
}  // namespace spa
