// Prompts that are scored: the form lm-eval's local-completions model asks and reads.
#include <gtest/gtest.h>

#include <thread>

#include "engine/likelihood.h"
#include "tests/server/test_server.h"

namespace spa::score_test {
namespace {

Json Complete(const Server& server, const Json& body, int status = 200) {
  const auto result = Post(server, "/v1/completions", body.dump());
  EXPECT_TRUE(result);
  EXPECT_EQ(result->status, status) << result->body;
  return Json::parse(result->body);
}

const Json kScore = {{"max_tokens", 1}, {"temperature", 0}, {"logprobs", 1},
                     {"seed", 1234},    {"echo", true},     {"model", "mini"}};

Json Score(const Server& server, const Json& prompt, int status = 200) {
  Json body = kScore;
  body["prompt"] = prompt;
  return Complete(server, body, status);
}

TEST(Score, TokensHaveTheNumbersOfTheChain) {
  Engine& engine = TestEngine();
  const std::string text = "not ( True ) is\nAnswer: False";
  const std::vector<TokenId> ids = engine.Encode({.messages = {}, .text = text});
  LikelihoodOptions chain;
  chain.estimator = Estimator::kChain;
  const Likelihood expected =
      LogLikelihood(engine, {ids.front()}, {ids.begin() + 1, ids.end()}, chain);

  const Server server(engine, TestOptions());
  const Json answer = Score(server, text);
  const Json& choice = answer["choices"][0];
  const Json& logprobs = choice["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), ids.size() + 1) << "one more is predicted";
  ASSERT_EQ(logprobs["token_logprobs"].size(), ids.size() + 1);
  ASSERT_EQ(logprobs["top_logprobs"].size(), ids.size() + 1);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  std::string joined;
  for (const Json& token : logprobs["tokens"]) joined += token.get<std::string>();
  EXPECT_EQ(choice["text"], joined);
  EXPECT_TRUE(joined.starts_with(text));
  for (size_t i = 0; i < expected.tokens.size(); ++i) {
    EXPECT_EQ(logprobs["token_logprobs"][i + 1], expected.tokens[i].log_probability) << i;
    // As lm-eval finds out whether a token is the greedy one.
    double best = -1e9;
    for (const auto& [token, value] : logprobs["top_logprobs"][i + 1].items()) {
      best = std::max(best, value.get<double>());
    }
    EXPECT_EQ(best, expected.tokens[i].best_log_probability) << i;
  }
  EXPECT_EQ(logprobs["text_offset"][1], logprobs["tokens"][0].get<std::string>().size());
  EXPECT_EQ(answer["usage"]["prompt_tokens"], ids.size());
  EXPECT_EQ(answer["usage"]["completion_tokens"], 1);

  // Ids give the same, and so does a batch of prompts beside a running answer.
  EXPECT_EQ(Score(server, Json(ids))["choices"], answer["choices"]);
  std::thread other([&] { Ask(server, ChatBody("True or False is")); });
  const Json batch = Score(server, Json::array({"True", text, "äöü"}));
  other.join();
  ASSERT_EQ(batch["choices"].size(), 3u);
  EXPECT_EQ(batch["choices"][1]["index"], 1);
  EXPECT_EQ(batch["choices"][1]["logprobs"], logprobs);
}

TEST(Score, NothingMoreIsPredictedIfNotAskedFor) {
  const Server server(TestEngine(), TestOptions());
  Json body = kScore;
  body["prompt"] = "True or False";
  body["max_tokens"] = 0;
  const Json choice = Complete(server, body)["choices"][0];
  EXPECT_EQ(choice["text"], "True or False");
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), choice["logprobs"]["token_logprobs"].size());
}

TEST(Score, EchoAloneRepeatsThePrompt) {
  const Server server(TestEngine(), TestOptions());
  const Json plain = Complete(server, {{"prompt", "True or False is"}, {"max_tokens", 32}});
  const Json echo =
      Complete(server, {{"prompt", "True or False is"}, {"max_tokens", 32}, {"echo", true}});
  EXPECT_EQ(echo["choices"][0]["text"],
            "True or False is" + plain["choices"][0]["text"].get<std::string>());
  EXPECT_TRUE(echo["choices"][0]["logprobs"].is_null());
}

TEST(Score, RefusesOtherForms) {
  const Server server(TestEngine(), TestOptions());
  for (const auto& [name, value] : std::vector<std::pair<std::string, Json>>{
           {"max_tokens", 2}, {"echo", false}, {"logprobs", 5}, {"stream", true}}) {
    Json body = kScore;
    body["prompt"] = "True";
    body[name] = value;
    EXPECT_EQ(Complete(server, body, 400)["error"]["param"], "logprobs") << name;
  }
  Score(server, "", 400);
  Json typo = kScore;
  typo["prompt"] = "True";
  typo["block_lenght"] = 8;
  EXPECT_EQ(Complete(server, typo, 400)["error"]["param"], "block_lenght");
}

}  // namespace
}  // namespace spa::score_test
