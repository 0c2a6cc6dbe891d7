// Whatever options a user combines, a cache finishes: on both model families, with and without
// parallel decoding. Options are drawn from the tables they are declared in, so a new one is
// covered the moment it exists.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"
#include "tests/test_model.h"
#include "tests/tiny_model.h"

namespace spa {
namespace {

// A value of the option for draw `i`; numbers from the whole range, ends included.
std::string Draw(const OptionInfo& info, const RandomStream& random, uint64_t i) {
  const double u = random.Uniform(i);
  switch (info.type) {
    case OptionType::kChoice:
      return info.choices[static_cast<size_t>(u * static_cast<double>(info.choices.size()))];
    case OptionType::kFlag:
      return u < 0.5 ? "on" : "off";
    case OptionType::kCount: {
      const double most = std::min(info.most, info.least + 12.0);
      return fmt::format("{}", std::floor(info.least + u * (most - info.least + 0.999)));
    }
    case OptionType::kReal: {
      const double most = std::min(info.most, info.least + 4.0);
      return fmt::format("{}", u < 0.1   ? info.least
                               : u > 0.9 ? most
                                         : info.least + u * (most - info.least));
    }
    case OptionType::kText:
      break;
  }
  return "off";
}

TEST(Combinations, RandomOptionsOfEveryCacheFinishAndRepeat) {
  TestModel llada(TinyModel("llada")), dream(TinyModel("dream"));
  const std::vector<TokenId> prompt = {5, 6, 7, 8, 9, 10, 11};
  size_t run = 0;
  for (uint64_t draw = 0; draw < 2000; ++draw) {
    const RandomStream random(11, draw, 0);
    TestModel& model = draw % 2 == 0 ? llada : dream;
    const CacheInfo& cache = Caches()[draw / 2 % Caches().size()];
    std::vector<std::string> options;
    for (size_t i = 0; i < cache.options.size(); ++i) {
      if (random.Uniform(2 * i) < 0.6) continue;  // most are left alone
      options.push_back(cache.options[i].name + "=" + Draw(cache.options[i], random, 2 * i + 1));
    }
    DecodeOptions decode = Greedy(12, random.Uniform(1000) < 0.5 ? 4 : 12);
    if (random.Uniform(1001) < 0.4) decode.threshold = 0.4;
    if (random.Uniform(1002) < 0.1) decode.cfg_scale = 1.0;
    PolicyFactory policy;
    try {
      policy = model.Policy(cache.name, options);
    } catch (const Error&) {
      continue;  // a rank or a layer this model does not have: told before the first step
    }
    SCOPED_TRACE(fmt::format("{} {}", cache.name, fmt::join(options, " ")));
    const auto answer = model.Generate(prompt, decode, policy);
    ASSERT_EQ(answer.size(), 12u);
    for (const TokenId id : answer) EXPECT_NE(id, model.file.config().mask_id);
    ++run;
  }
  EXPECT_GE(run, 1500u);
}

// The combination that once ended the server, and its neighbours.
TEST(Combinations, EveryIdentifierWithEveryPresetScopeAndFocus) {
  TestModel llada(TinyModel("llada")), dream(TinyModel("dream"));
  const std::vector<TokenId> prompt = {5, 6, 7, 8, 9};
  const CacheInfo& spa = FindCache("spa");
  const auto choices = [&](const char* name) { return FindOption(spa.options, name)->choices; };
  for (TestModel* model : {&llada, &dream}) {
    for (const std::string& identifier : choices("identifier")) {
      for (const std::string& preset : choices("preset")) {
        for (const std::string& scope : choices("scope")) {
          for (const std::string& first_layer : choices("first-layer")) {
            for (const char* focus : {"on", "off"}) {
              SCOPED_TRACE(
                  fmt::format("{} {} {} {} {}", identifier, preset, scope, first_layer, focus));
              const PolicyFactory policy = model->Policy(
                  "spa", {"identifier=" + identifier, "preset=" + preset, "scope=" + scope,
                          "first-layer=" + first_layer, std::string("focus=") + focus, "rank=2"});
              EXPECT_NO_THROW(model->Generate(prompt, Greedy(8, 4), policy));
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace spa
