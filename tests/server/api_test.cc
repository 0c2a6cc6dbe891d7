// Request bodies: what is taken, what is refused and with which words.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/api_request.h"
#include "tests/server/test_engine.h"

namespace spa {

using Json = nlohmann::json;  // as in test_server.h

namespace {

ApiRequest Parse(const std::string& body, Route route = Route::kChat, ApiLimits limits = {}) {
  return ParseApiRequest(route, body, TestEngine(), "mini", {.name = "spa", .options = {}}, limits);
}

ApiRequest Chat(Json more) {
  more["messages"] = Json::array({{{"role", "user"}, {"content", "not True is"}}});
  return Parse(more.dump());
}

// The error object of a body that must be refused.
Json ErrorFor(const std::string& body, Route route = Route::kChat, ApiLimits limits = {}) {
  try {
    Parse(body, route, limits);
  } catch (const ApiError& error) {
    Json json = Json::parse(error.Body())["error"];
    json["status"] = error.status;
    return json;
  }
  ADD_FAILURE() << "accepted: " << body.substr(0, 200);
  return {};
}

Json ChatError(Json more) {
  more["messages"] = Json::array({{{"role", "user"}, {"content", "not True is"}}});
  return ErrorFor(more.dump());
}

TEST(Api, TakesAPlainChat) {
  const ApiRequest request = Chat({{"model", "mini"}, {"max_tokens", 20}});
  ASSERT_EQ(request.tasks.size(), 1u);
  const GenerationTask& task = request.tasks[0];
  EXPECT_EQ(task.max_tokens, 20u);
  EXPECT_EQ(task.decode.gen_length, 32u);  // whole blocks
  EXPECT_EQ(task.cache.name, "spa");
  EXPECT_FALSE(request.stream);
}

TEST(Api, WhoGivesNoSeedGetsOneNobodyCanForesee) {
  const auto seed = [](Json fields) { return Chat(std::move(fields)).tasks[0].decode.seed; };
  EXPECT_NE(seed({{"temperature", 1}}), seed({{"temperature", 1}}));
  EXPECT_EQ(seed({{"temperature", 0}}), seed({{"temperature", 0}}));
  EXPECT_EQ(seed({{"temperature", 1}, {"seed", -1}}), ~uint64_t{0});
  EXPECT_EQ(seed({{"seed", uint64_t{1} << 63}}), uint64_t{1} << 63);
}

TEST(Api, AModelIsDecodedInItsOwnWay) {
  Engine engine({.model = SPA_MODELS_DIR "/minillada.gguf",
                 .threads = 1,
                 .kv_type = KvType::kF32,
                 .progress = {}});
  const auto decode = [&](const std::string& fields) {
    const std::string body =
        R"({"messages":[{"role":"user","content":"not True is"}])" + fields + "}";
    return ParseApiRequest(Route::kChat, body, engine, "mini", {.name = "spa", .options = {}}, {})
        .tasks[0]
        .decode;
  };
  for (const char* fields : {"", R"(,"max_tokens":64)"}) {
    EXPECT_EQ(decode(fields).block_length, 1u);
    EXPECT_EQ(decode(fields).first_threshold, 0.99);
  }
  EXPECT_EQ(decode(R"(,"max_tokens":64,"block_length":16)").first_threshold, std::nullopt);
}

TEST(Api, AnAnswerOfNoGivenLengthFitsBehindThePrompt) {
  const size_t context = TestEngine().config().context_length;
  std::string text;
  while (TestEngine().tokenizer().Encode(text).size() + 80 < context) text += "True and ";
  const Json message = {{"role", "user"}, {"content", text}};
  const ApiRequest request = Parse(Json{{"messages", Json::array({message})}}.dump());
  const GenerationTask& task = request.tasks[0];
  EXPECT_LT(task.decode.gen_length, TestEngine().DefaultDecodeOptions().gen_length);
  EXPECT_LE(task.prompt.size() + task.decode.gen_length, context);
  EXPECT_EQ(task.decode.gen_length % task.decode.block_length, 0u);
}

TEST(Api, ReadsTheFieldsOfDiffusionModels) {
  const ApiRequest request = Chat({{"max_tokens", 64},
                                   {"block_length", 16},
                                   {"steps", 32},
                                   {"remasking", "random"},
                                   {"threshold", 0.9},
                                   {"seed", 7},
                                   {"cache", "dllm"},
                                   {"cache_options", {{"gen-interval", 3}}},
                                   {"stop", {"a", "b"}},
                                   {"n", 2},
                                   {"stream", true},
                                   {"stream_diffusion", true}});
  ASSERT_EQ(request.tasks.size(), 2u);
  const GenerationTask& task = request.tasks[1];
  EXPECT_EQ(task.decode.block_length, 16u);
  EXPECT_EQ(task.decode.steps, 32u);
  EXPECT_EQ(task.decode.order, Order::kRandom);
  EXPECT_EQ(request.tasks[0].decode.seed, 7u);
  EXPECT_NE(task.decode.seed, 7u);
  EXPECT_NE(task.decode.seed, Chat({{"seed", 8}}).tasks[0].decode.seed);
  EXPECT_EQ(task.cache.ToString(), "dllm(gen-interval=3)");
  EXPECT_EQ(task.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(task.frames);
}

TEST(Api, RefusesWhatItDoesNotKnowByName) {
  EXPECT_EQ(ChatError({{"block_lenght", 8}})["param"], "block_lenght");
  EXPECT_EQ(ChatError({{"logprobs", true}})["param"], "logprobs");
  EXPECT_EQ(ChatError({{"tools", {{{"type", "function"}}}}})["param"], "tools");
  EXPECT_EQ(ChatError({{"cache", "magic"}})["param"], "cache");
  EXPECT_EQ(ChatError({{"model", "other"}})["status"], 404);
  EXPECT_EQ(ChatError({{"temperature", -1}})["param"], "temperature");
  EXPECT_EQ(ChatError({{"temperature", "hot"}})["param"], "temperature");
  EXPECT_EQ(ChatError({{"max_tokens", 0}})["param"], "max_tokens");
  EXPECT_EQ(ChatError({{"max_tokens", 1e18}})["param"], "max_tokens");
  EXPECT_EQ(ChatError({{"stop", std::vector<std::string>(17, "x")}})["param"], "stop");
  EXPECT_EQ(ChatError({{"stop", {1}}})["param"], "stop");
  EXPECT_EQ(ChatError({{"steps", 3}, {"block_length", 16}, {"max_tokens", 64}})["status"], 400);
  EXPECT_EQ(ChatError({{"top_p", 0.5}, {"temperature", 1}})["status"], 400);  // not LLaDA's
  EXPECT_EQ(ChatError({{"remasking", "best"}})["status"], 400);
  EXPECT_EQ(ChatError({{"stream_diffusion", true}})["param"], "stream_diffusion");
}

TEST(Api, ExactDecodingTakesNoCache) {
  EXPECT_EQ(ChatError({{"exact", true}, {"cache", "spa"}})["param"], "cache");
  EXPECT_EQ(ChatError({{"exact", true}, {"cache_options", {{"rank", 4}}}})["param"],
            "cache_options");
  EXPECT_NO_THROW(Chat({{"exact", true}}));  // the server's own is not asked for
  EXPECT_NO_THROW(Chat({{"exact", true}, {"cache", "none"}}));
  EXPECT_NO_THROW(Chat({{"exact", false}, {"cache", "spa"}}));
}

TEST(Api, TakesNeutralValuesOfTheRest) {
  EXPECT_NO_THROW(Chat({{"temperature", 0},
                        {"top_p", 1},
                        {"seed", 1234},
                        {"n", 1},
                        {"presence_penalty", 0.0},
                        {"frequency_penalty", 0},
                        {"logprobs", false},
                        {"user", "me"},
                        {"tools", Json::array()},
                        {"stop", nullptr},
                        {"response_format", {{"type", "text"}}}}));
  EXPECT_NO_THROW(Chat({{"repetition_penalty", 1.0},
                        {"min_p", 0},
                        {"top_k", -1},
                        {"top_p", 0.5},
                        {"temperature", 0},
                        {"reasoning_effort", "high"},
                        {"ignore_eos", false},
                        {"stream_options", {{"include_usage", true}}}}));
  EXPECT_EQ(ChatError({{"repetition_penalty", 1.1}})["param"], "repetition_penalty");
  EXPECT_EQ(ChatError({{"min_p", 0.1}})["param"], "min_p");
  EXPECT_EQ(ChatError({{"top_k", -2}})["param"], "top_k");
  EXPECT_EQ(ChatError({{"top_p", 2}})["param"], "top_p");
  EXPECT_EQ(ChatError({{"temperature", "0.5"}})["param"], "temperature");
}

TEST(Api, IgnoresUnknownFieldsOnlyWhenToldTo) {
  const std::string body =
      R"({"prompt":"x","guided_regex":"a","stream":true,"stream_options":{"often":1},"zz":null})";
  EXPECT_EQ(ErrorFor(body, Route::kCompletion)["status"], 400);
  const ApiRequest request = Parse(body, Route::kCompletion, {.lenient = true});
  EXPECT_EQ(request.ignored, (std::vector<std::string>{"often", "guided_regex", "zz"}));
  // Known fields are still refused if their value is not supported.
  EXPECT_EQ(
      ErrorFor(R"({"prompt":"x","min_p":0.5})", Route::kCompletion, {.lenient = true})["param"],
      "min_p");
}

TEST(Api, ClampsTokensThatDoNotFit) {
  const size_t context = TestEngine().config().context_length;
  for (const size_t asked : {context, size_t{1} << 20}) {
    const ApiRequest request = Chat({{"max_tokens", asked}});
    const GenerationTask& task = request.tasks[0];
    EXPECT_TRUE(request.clamped);
    EXPECT_EQ(task.decode.gen_length, task.max_tokens);
    EXPECT_EQ(task.decode.gen_length % 32, 0u);
    EXPECT_LE(task.prompt.size() + task.decode.gen_length, context);
    EXPECT_GT(task.prompt.size() + task.decode.gen_length + 32, context);
  }
  EXPECT_FALSE(Chat({{"max_tokens", 64}}).clamped);
  EXPECT_FALSE(Chat(Json::object()).clamped);
  const Json body = {{"prompt", {300, 301}}, {"max_tokens", 100}};
  const ApiRequest limited = Parse(body.dump(), Route::kCompletion, {.max_tokens = 40});
  EXPECT_TRUE(limited.clamped);
  EXPECT_EQ(limited.tasks[0].max_tokens, 40u);
  // A prompt that leaves less than a block still gets an answer.
  const Json tight = {{"prompt", std::vector<int>(context - 5, 300)}, {"max_tokens", 64}};
  EXPECT_EQ(Parse(tight.dump(), Route::kCompletion).tasks[0].decode.gen_length, 5u);
  const Json full = {{"prompt", std::vector<int>(context, 300)}, {"max_tokens", 64}};
  EXPECT_EQ(ErrorFor(full.dump(), Route::kCompletion)["code"], "context_length_exceeded");
}

TEST(Api, AnswersAnyBodyWithAnError) {
  for (const std::string body :
       {"", "{", "[]", "null", "{}", R"({"messages":[]})", R"({"messages":"x"})",
        R"({"messages":[1]})", R"({"messages":[{"role":"king","content":"x"}]})",
        R"({"messages":[{"role":"user","content":7}]})",
        R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "{\"a\":1e999}"}) {
    EXPECT_EQ(ErrorFor(body)["status"], 400) << body;
  }
  EXPECT_EQ(ErrorFor(std::string(100000, '['))["status"], 400);
}

TEST(Api, ReadsEveryFormOfPrompt) {
  const auto tasks = [](const std::string& prompt) {
    return Parse(R"({"prompt":)" + prompt + "}", Route::kCompletion).tasks.size();
  };
  EXPECT_EQ(tasks(R"("True is")"), 1u);
  EXPECT_EQ(tasks(R"(["True is","False is"])"), 2u);
  EXPECT_EQ(tasks("[300,301]"), 1u);
  EXPECT_EQ(tasks("[[300],[301,302],[303]]"), 3u);
  const auto status = [](const std::string& prompt) {
    return ErrorFor(R"({"prompt":)" + prompt + "}", Route::kCompletion)["status"];
  };
  EXPECT_EQ(status("[]"), 400);
  EXPECT_EQ(status("[[]]"), 400);
  EXPECT_EQ(status("[-1]"), 400);
  EXPECT_EQ(status("[1.5]"), 400);
  EXPECT_EQ(status("[99999999]"), 400);
  EXPECT_EQ(status("\"\""), 400);
  EXPECT_EQ(status("7"), 400);
  EXPECT_EQ(status("[" + std::to_string(TestEngine().vocabulary().mask_id) + "]"), 400);
}

TEST(Api, MaskTextStaysText) {
  const Tokenizer& tokenizer = TestEngine().tokenizer();
  const std::string mask(tokenizer.TokenBytes(TestEngine().vocabulary().mask_id));
  ASSERT_FALSE(mask.empty());
  const Json chat = {{"messages", {{{"role", "user"}, {"content", "is " + mask}}}}};
  const Json completion = {{"prompt", "is " + mask}};
  for (const auto& request : {Parse(chat.dump()), Parse(completion.dump(), Route::kCompletion)}) {
    for (const TokenId id : request.tasks[0].prompt) {
      EXPECT_NE(id, TestEngine().vocabulary().mask_id);
    }
  }
}

TEST(Api, SaysWhenThePromptIsTooLong) {
  const std::string words(6000, 'x');
  const Json body = {{"prompt", words}};
  EXPECT_EQ(ErrorFor(body.dump(), Route::kCompletion)["code"], "context_length_exceeded");
  const Json two = {{"prompt", {300, 301, 302}}};
  EXPECT_EQ(ErrorFor(two.dump(), Route::kCompletion, {.max_prompt_tokens = 2})["code"],
            "context_length_exceeded");
}

TEST(Api, ContinuesTheAssistantsWords) {
  const Json body = {{"messages",
                      {{{"role", "user"}, {"content", "not True is"}},
                       {{"role", "assistant"}, {"content", "=> False"}}}}};
  const Tokenizer& tokenizer = TestEngine().tokenizer();
  const std::vector<TokenId> begun = tokenizer.Encode("=> False");
  const std::vector<TokenId> prompt = Parse(body.dump()).tasks[0].prompt;
  const std::vector<TokenId> asked = Chat(Json::object()).tasks[0].prompt;
  ASSERT_EQ(prompt.size(), asked.size() + begun.size());
  EXPECT_TRUE(
      std::equal(begun.begin(), begun.end(), prompt.end() - static_cast<ptrdiff_t>(begun.size())));
}

}  // namespace
}  // namespace spa
