// Likelihoods against a plain NumPy computation (tests/data/make_likelihoods.py), and what holds
// for every model: one token is exact, draws are unbiased, neither batch nor threads change a
// number.
#include "engine/likelihood.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/tiny_model.h"

namespace spa {
namespace {

using nlohmann::json;

constexpr double kClose = 2e-4;  // float32 against float64, weighted up to 24 times

std::unique_ptr<Engine> Load(const std::string& path, size_t threads = 2) {
  return std::make_unique<Engine>(
      EngineOptions{.model = path, .threads = threads, .kv_type = KvType::kF32, .progress = {}});
}

Likelihood Score(Engine& engine, const json& one, const char* estimator) {
  LikelihoodOptions options;
  options.estimator = ParseEstimator(estimator);
  options.draws = one["draws"];
  options.seed = one["seed"];
  options.end_token = one["end_token"].get<bool>() && std::string(estimator) != "chain";
  return LogLikelihood(engine, one["prompt"], one["target"], options);
}

TEST(Likelihood, AgreesWithAPlainComputation) {
  std::ifstream in(SPA_TEST_DATA "/likelihoods.json");
  const json cases = json::parse(in);
  ASSERT_EQ(cases.size(), 11u);
  for (const json& one : cases) {
    const std::string where = one["model"].get<std::string>() + " " + one["target"].dump();
    const auto engine = Load(SPA_TEST_DATA "/" + one["model"].get<std::string>());
    for (const char* estimator : {"enumerate", "llada", "dream"}) {
      if (!one.contains(estimator)) continue;
      const Likelihood ours = Score(*engine, one, estimator);
      EXPECT_NEAR(ours.log_probability, one[estimator][0].get<double>(), kClose)
          << where << " " << estimator;
      EXPECT_NEAR(ours.standard_error, one[estimator][1].get<double>(), kClose)
          << where << " " << estimator;
    }
    const Likelihood chain = Score(*engine, one, "chain");
    ASSERT_EQ(chain.tokens.size(), one["chain"].size()) << where;
    double sum = 0.0;
    bool best = true;
    for (size_t i = 0; i < chain.tokens.size(); ++i) {
      EXPECT_NEAR(chain.tokens[i].log_probability, one["chain"][i][0].get<double>(), kClose);
      EXPECT_EQ(chain.tokens[i].best, one["chain"][i][1].get<TokenId>()) << where;
      EXPECT_NEAR(chain.tokens[i].best_log_probability, one["chain"][i][2].get<double>(), kClose);
      sum += one["chain"][i][0].get<double>();
      best = best && one["chain"][i][1] == one["target"][i];
    }
    EXPECT_NEAR(chain.log_probability, sum, kClose) << where;
    EXPECT_EQ(chain.is_greedy, best) << where;
    LikelihoodOptions greedy;
    greedy.greedy = true;
    greedy.draws = 16;
    EXPECT_EQ(LogLikelihood(*engine, one["prompt"], one["target"], greedy).is_greedy,
              one["greedy"].get<bool>())
        << where;
  }
}

class LikelihoodLaws : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Engine> engine = Load(TinyModel(GetParam()));
};

TEST_P(LikelihoodLaws, OneTokenIsOnePassAndExact) {
  const std::vector<TokenId> prompt = {3, 1, 4, 1, 5}, target = {9};
  std::vector<TokenId> ids = prompt;
  ids.push_back(engine->config().mask_id);
  double expected = 0.0;
  engine->DenseLogits(ids, [&](size_t row, std::span<const float> logits) {
    if (row != prompt.size() - (engine->config().logit_shift ? 1 : 0)) return;
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    expected = logits[9] - std::log(sum);
  });
  for (const char* name : {"auto", "enumerate", "llada", "chain"}) {
    LikelihoodOptions options;
    options.estimator = ParseEstimator(name);
    Scorer scorer(*engine, {{prompt, target}}, options);
    EXPECT_EQ(scorer.passes(), 1u) << name;
    while (!scorer.done()) scorer.Step();
    EXPECT_NEAR(scorer.Results()[0].log_probability, expected, 1e-7) << name;
    EXPECT_NEAR(scorer.Results()[0].standard_error, 0.0, 1e-9) << name;
  }
}

TEST_P(LikelihoodLaws, DrawsAreUnbiasedAndTheErrorIsHonest) {
  const std::vector<TokenId> prompt = {3, 1, 4}, target = {9, 2, 6, 5};
  const auto score = [&](const char* name, size_t draws, uint64_t seed) {
    LikelihoodOptions options;
    options.estimator = ParseEstimator(name);
    options.draws = draws;
    options.seed = seed;
    return LogLikelihood(*engine, prompt, target, options);
  };
  const double exact = score("enumerate", 16, 0).log_probability;
  for (const char* name : {"llada", "dream"}) {
    // 64 runs of 32 draws: their mean is near, and their spread is what each of them claims.
    double mean = 0.0, square = 0.0, claimed = 0.0;
    constexpr int kRuns = 64;
    for (uint64_t seed = 0; seed < kRuns; ++seed) {
      const Likelihood one = score(name, 32, seed);
      mean += one.log_probability / kRuns;
      square += one.log_probability * one.log_probability / kRuns;
      claimed += one.standard_error * one.standard_error / kRuns;
    }
    const double spread = std::sqrt(square - mean * mean);
    EXPECT_NEAR(mean, exact, 4.0 * spread / std::sqrt(kRuns)) << name;
    EXPECT_NEAR(std::sqrt(claimed) / spread, 1.0, 0.35) << name;
  }
}

TEST_P(LikelihoodLaws, NeitherBatchNorThreadsChangeANumber) {
  const std::vector<LikelihoodRequest> requests = {
      {{3, 1, 4}, {9, 2, 6, 5, 7, 11}}, {{3, 1, 4}, {9, 2}}, {{8}, {9, 2, 6, 5, 3, 5, 8, 9}}};
  LikelihoodOptions options;
  options.draws = 16;
  const auto together = LogLikelihoods(*engine, requests, options);
  const auto one_thread = Load(TinyModel(GetParam()), 1);
  options.batch_rows = 1;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = LogLikelihood(*one_thread, requests[i].prompt, requests[i].target, options);
    EXPECT_EQ(alone.log_probability, together[i].log_probability) << i;
    EXPECT_EQ(alone.standard_error, together[i].standard_error) << i;
  }
}

TEST_P(LikelihoodLaws, ChoicesOfOneTokenShareTheirPass) {
  Scorer scorer(*engine, {{{3, 1, 4}, {9}}, {{3, 1, 4}, {2}}, {{3, 1, 4}, {6}}}, {});
  EXPECT_EQ(scorer.passes(), 1u);
  while (!scorer.done()) scorer.Step();
  const auto results = scorer.Results();
  EXPECT_NE(results[0].log_probability, results[1].log_probability);
  EXPECT_NE(results[1].log_probability, results[2].log_probability);
}

TEST_P(LikelihoodLaws, RefusesWhatItCannotScore) {
  EXPECT_THROW(LogLikelihood(*engine, {}, {1}, {}), Error);
  EXPECT_THROW(LogLikelihood(*engine, {1}, {}, {}), Error);
  EXPECT_THROW(LogLikelihood(*engine, {1}, {64}, {}), Error);
  EXPECT_THROW(LogLikelihood(*engine, {1}, std::vector<TokenId>(128, 1), {}), Error);
  EXPECT_THROW(ParseEstimator("chane"), Error);
}

INSTANTIATE_TEST_SUITE_P(Families, LikelihoodLaws, testing::Values("llada", "dream"));

TEST(Likelihood, TheBorderOfAContinuation) {
  const auto engine = Load(SPA_TEST_DATA "/mini.gguf");
  const auto split = EncodeContinuation(*engine, "Is it true? ", "Yes");
  const auto text = [&](const std::vector<TokenId>& ids) {
    return engine->tokenizer().Decode(ids);
  };
  EXPECT_EQ(text(split.prompt), "Is it true?");
  EXPECT_EQ(text(split.target), " Yes");
  EXPECT_THROW(EncodeContinuation(*engine, " ", "Yes"), Error);
  EXPECT_THROW(EncodeContinuation(*engine, "Is it", ""), Error);
}

}  // namespace
}  // namespace spa
