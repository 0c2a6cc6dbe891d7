// Laws that hold for every way of decoding: with a full budget a cache changes nothing; an answer
// depends neither on what runs beside it nor on the number of threads.
#include <gtest/gtest.h>

#include <algorithm>
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
      {"threshold", [](DecodeOptions& o) { o.threshold = 0.3; }},
      {"loosened threshold", [](DecodeOptions& o) { o.threshold = 0.4, o.loosen = 0.9; }},
      {"factor", [](DecodeOptions& o) { o.factor = 2.0; }},
      {"entropy bound", [](DecodeOptions& o) { o.entropy_bound = 4.0; }},
      {"hierarchical", [](DecodeOptions& o) { o.hierarchical = 0.2; }},
      {"klass", [](DecodeOptions& o) { o.threshold = 0.1, o.klass = 0.5; }},
      {"credit", [](DecodeOptions& o) { o.threshold = 0.3, o.credit = 0.7; }},
      {"prophet", [](DecodeOptions& o) { o.prophet = true; }},
      {"window", [](DecodeOptions& o) { o.threshold = 0.3, o.window = 3; }},
      {"no window", [](DecodeOptions& o) { o.window = 0; }},
      {"dpad", [](DecodeOptions& o) { o.threshold = 0.3, o.window = 8, o.window_scale = 1.5; }},
      {"greedy slide", [](DecodeOptions& o) { o.threshold = 0.3, o.slide = Slide::kGreedy; }},
      {"constant slide", [](DecodeOptions& o) { o.slide = Slide::kConst; }},
      {"sliding window",
       [](DecodeOptions& o) { o.threshold = 0.3, o.slide = Slide::kGreedy, o.window = 3; }},
      {"sure in the first step", [](DecodeOptions& o) { o.first_threshold = 0.2; }},
      {"left to right, sure in the first step",
       [](DecodeOptions& o) { o.block_length = 1, o.first_threshold = 0.2, o.window = 5; }},
      {"sure in the first step, then a threshold in a sliding block",
       [](DecodeOptions& o) {
         o.threshold = 0.3, o.first_threshold = 0.25, o.slide = Slide::kGreedy;
       }},
      {"saber", [](DecodeOptions& o) { o.saber = 2; }},
      {"wino", [](DecodeOptions& o) { o.threshold = 0.1, o.wino = 0.5; }},
      {"wino in a window", [](DecodeOptions& o) { o.threshold = 0.1, o.wino = 0.5, o.window = 2; }},
      {"growth", [](DecodeOptions& o) { o.threshold = 0.3, o.grow_to = 40; }},
      {"growth, one token per step", [](DecodeOptions& o) { o.grow_to = 30; }},
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

const char* const kFamilies[] = {"llada", "dream"};

// WINO's shadow rows stand for rows that predict themselves.
bool Fits(const Method& method, const TestModel& model) {
  DecodeOptions options;
  method.set(options);
  return !options.wino || !model.file.config().logit_shift;
}

DecodeOptions With(const Method& method) {
  DecodeOptions options = Greedy(24, 6);
  method.set(options);
  ValidateDecodeOptions(options);
  return options;
}

TEST(Methods, AFullBudgetChangesNothing) {
  for (const char* family : kFamilies) {
    TestModel model(TinyModel(family), 1);
    const std::vector<TokenId> prompt = Prompt(model, 11, 1);
    for (const Method& method : Methods()) {
      if (!Fits(method, model)) continue;
      const DecodeOptions options = With(method);
      const auto exact = model.Generate(prompt, options, model.Policy("none"));
      for (const CacheInfo& cache : Caches()) {
        if (cache.name == "block") continue;  // for models with block attention
        EXPECT_EQ(
            model.Generate(prompt, options, model.Policy(cache.name, Words(cache.full_options))),
            exact)
            << family << ", " << method.name << ", " << cache.name;
      }
    }
  }
}

// With their default budgets caches are approximations, but every method must run with each.
TEST(Methods, EveryMethodRunsWithEveryCache) {
  for (const char* family : kFamilies) {
    TestModel model(TinyModel(family), 1);
    const TokenId mask = model.file.config().mask_id;
    for (const Method& method : Methods()) {
      if (!Fits(method, model)) continue;
      for (const CacheInfo& cache : Caches()) {
        if (cache.name == "block") continue;
        const auto answer =
            model.Generate(Prompt(model, 9, 2), With(method), model.Policy(cache.name));
        EXPECT_EQ(std::ranges::count(answer, mask), 0)
            << family << ", " << method.name << ", " << cache.name;
      }
    }
  }
}

TEST(Methods, AnswersDoNotDependOnBatchOrThreads) {
  for (const char* family : kFamilies) {
    TestModel one(TinyModel(family), 1), two(TinyModel(family), 2);
    for (const char* cache : {"none", "spa"}) {
      std::vector<std::unique_ptr<Generation>> together;
      std::vector<std::vector<TokenId>> alone;
      for (size_t i = 0; i < Methods().size(); ++i) {
        if (!Fits(Methods()[i], one)) continue;
        const DecodeOptions options = With(Methods()[i]);
        const std::vector<TokenId> prompt = Prompt(one, 5 + i % 7, i);
        alone.push_back(one.Generate(prompt, options, one.Policy(cache)));
        together.push_back(two.Start(prompt, options, two.Policy(cache)));
      }
      two.Finish(together);
      for (size_t i = 0; i < together.size(); ++i) {
        EXPECT_EQ(TestModel::Answer(*together[i]), alone[i])
            << family << ", " << cache << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace spa
