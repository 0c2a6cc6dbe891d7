// The server over loopback: what comes back, that batching changes nothing, limits, shutdown.
#include "server/server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "engine/embedded.h"
#include "tests/server/test_server.h"

namespace spa {
namespace {

std::vector<Json> Events(const std::string& body, bool* done) {
  std::vector<Json> events;
  *done = false;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = body.find("\n\n", begin);
    const std::string event = body.substr(begin, end - begin);
    begin = end + 2;
    if (event == "data: [DONE]") {
      *done = true;
    } else if (event.starts_with("data: ")) {
      events.push_back(Json::parse(event.substr(6)));
    }
  }
  return events;
}

TEST(Server, AnswersAndTellsWhatItIs) {
  Server server(TestEngine(), TestOptions());
  auto client = Connect(server);
  EXPECT_EQ(client.Get("/health")->body, R"({"status":"ok"})");
  EXPECT_EQ(Json::parse(client.Get("/v1/models")->body)["data"][0]["id"], "mini");
  EXPECT_EQ(client.Get("/v1/models/mini")->status, 200);
  EXPECT_EQ(client.Get("/v1/models/other")->status, 404);
  EXPECT_EQ(client.Get("/nothing")->status, 404);
  const auto wrong_method = client.Get("/v1/chat/completions");
  EXPECT_EQ(wrong_method->status, 405);
  EXPECT_EQ(wrong_method->get_header_value("Allow"), "POST");
  const auto page = client.Get("/", {{"Accept-Encoding", "br, gzip"}});
  EXPECT_EQ(page->body, EmbeddedPage());
  EXPECT_FALSE(page->has_header("Content-Encoding"));  // compressing it would take seconds
  const auto result = Ask(server, ChatBody("not True is"));
  const Json body = Json::parse(result->body);
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["usage"]["total_tokens"], body["usage"]["prompt_tokens"].get<int>() +
                                               body["usage"]["completion_tokens"].get<int>());
  EXPECT_TRUE(body["choices"][0]["finish_reason"] == "stop" ||
              body["choices"][0]["finish_reason"] == "length");
  EXPECT_EQ(Ask(server, "{")->status, 400);
  EXPECT_EQ(
      Ask(server, ChatBody("x", {{"cache", "spa"}, {"cache_options", {{"nonsense", 1}}}}))->status,
      400);
}

TEST(Server, OneTableOfRoutes) {
  ServerOptions options = TestOptions();
  std::mutex mutex;
  std::vector<Json> lines;
  options.log = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(Json::parse(line));
  };
  {
    Server server(TestEngine(), options);
    auto client = Connect(server);
    EXPECT_EQ(client.Post("/v1/models", "{}", "application/json")->status, 405);
    EXPECT_EQ(client.Post("/v1/models/mini", "{}", "application/json")->status, 405);
    EXPECT_EQ(client.Get("/tokenize")->get_header_value("Allow"), "POST");
    EXPECT_EQ(client.Get("/v1/models/no such")->status, 404);
    EXPECT_EQ(client.Get("/v1/modelsx")->status, 404);
    EXPECT_EQ(client.Get("/health")->status, 200);
    // A request is counted and logged after it was answered.
    EXPECT_TRUE(Becomes(server, R"(dlm_requests_total{route="/v1/models/*",status="404"})", 1.0));
    EXPECT_TRUE(Becomes(server, R"(dlm_requests_total{route="other",status="404"})", 1.0));
  }
  // The server may close a connection after a refusal, so the order of the lines is open.
  const auto logged = [&](const std::string& path, int status) {
    return std::count_if(lines.begin(), lines.end(), [&](const Json& line) {
      return line["path"] == path && line["status"] == status;
    });
  };
  EXPECT_EQ(logged("/v1/models", 405), 1);
  EXPECT_EQ(logged("/v1/models/*", 405), 1);
  EXPECT_EQ(logged("/v1/models/*", 404), 1);
  EXPECT_EQ(logged("/tokenize", 405), 1);
  EXPECT_EQ(logged("other", 404), 1);
  EXPECT_EQ(logged("/health", 200), 1);
}

TEST(Server, SaysInTheLogWhyItRefused) {
  ServerOptions options = TestOptions();
  std::mutex mutex;
  std::vector<std::string> lines;
  options.log = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  {
    Server server(TestEngine(), options);
    EXPECT_EQ(Ask(server, ChatBody("secret words", {{"block_lenght", 8}}))->status, 400);
    EXPECT_EQ(Ask(server, ChatBody("x", {{std::string(5000, 'y'), 8}}))->status, 400);
    EXPECT_EQ(Ask(server, ChatBody("not True is"))->status, 200);
  }
  ASSERT_EQ(lines.size(), 3u);
  // Each came on a connection of its own, so the order is open.
  size_t misspelt = 0, answered = 0;
  for (const std::string& line : lines) {
    EXPECT_EQ(line.find("secret"), std::string::npos);
    EXPECT_LT(line.size(), 600u);
    if (line.find("block_lenght") != std::string::npos) ++misspelt;
    if (!Json::parse(line).contains("error")) ++answered;
  }
  EXPECT_EQ(misspelt, 1u);
  EXPECT_EQ(answered, 1u);
}

TEST(Server, SaysWhatItDidNotDoAsAsked) {
  ServerOptions options = TestOptions();
  options.limits.lenient = true;
  options.limits.max_tokens = 64;
  Server server(TestEngine(), options);
  const auto result = Ask(
      server,
      ChatBody("not True is", {{"max_tokens", 100000}, {"guided_regex", "x"}, {"a\r\nb: c", 1}}));
  EXPECT_EQ(result->status, 200);
  EXPECT_EQ(result->get_header_value("x-spa-ignored"), "a??b:?c, guided_regex");
  EXPECT_FALSE(result->has_header("b"));
  const size_t clamped = std::stoul(result->get_header_value("x-spa-max-tokens"));
  EXPECT_EQ(clamped, 64u);
  const auto plain = Ask(server, ChatBody("not True is"));
  EXPECT_FALSE(plain->has_header("x-spa-ignored"));
  EXPECT_FALSE(plain->has_header("x-spa-max-tokens"));
}

TEST(Server, AModelSaysWhatItKnows) {
  Server server(TestEngine(), TestOptions());
  const Json plain = Json::parse(Connect(server).Get("/v1/models")->body)["data"][0];
  EXPECT_FALSE(plain.contains("single_turn"));
  EXPECT_FALSE(plain.contains("knows"));

  Engine taught({.model = SPA_MODELS_DIR "/minillada.gguf",
                 .threads = 2,
                 .kv_type = KvType::kF32,
                 .progress = {}});
  Server puzzles(taught, TestOptions());
  const Json model = Json::parse(Connect(puzzles).Get("/v1/models")->body)["data"][0];
  EXPECT_EQ(model["single_turn"], true);
  EXPECT_NE(model["knows"].get<std::string>().find("puzzles"), std::string::npos);
  EXPECT_EQ(Ask(puzzles, ChatBody("not ( True ) is"))->status, 200);
  const auto refused = Ask(puzzles, ChatBody("Why is the sky blue?"));
  EXPECT_EQ(refused->status, 400);
  EXPECT_NE(refused->body.find("never seen: sky"), std::string::npos) << refused->body;
  // Those who send a raw prompt know what they do.
  EXPECT_EQ(Post(puzzles, "/v1/completions", R"({"prompt":"Why","max_tokens":16})")->status, 200);
}

TEST(Server, TokenizesAsItAnswers) {
  Server server(TestEngine(), TestOptions());
  const auto post = [&](const std::string& path, const Json& body) {
    return Json::parse(Post(server, path, body.dump())->body);
  };
  const Json info = Json::parse(Connect(server).Get("/tokenizer_info")->body);
  const std::string eos = info["eos_token"];
  EXPECT_EQ(post("/tokenize", {{"prompt", eos}, {"add_special_tokens", false}})["tokens"],
            Json::array({*TestEngine().tokenizer().eos()}));
  const std::string text = "not ( True ) is " + eos + " \xc3\xa9";
  const Json tokens = post("/tokenize", {{"prompt", text}, {"return_token_strs", true}});
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(tokens["token_strs"].size(), tokens["tokens"].size());
  EXPECT_EQ(tokens["max_model_len"], TestEngine().config().context_length);
  EXPECT_EQ(post("/detokenize", {{"tokens", tokens["tokens"]}})["prompt"], text);
  // A prompt of ids is the prompt of their text.
  const auto answer = [&](const Json& prompt) {
    return post("/v1/completions", {{"prompt", prompt}, {"max_tokens", 16}})["choices"][0]["text"];
  };
  EXPECT_EQ(answer(text), answer(tokens["tokens"]));
  for (const char* wrong : {"{}", R"({"prompt":7})", R"({"prompt":"x","y":1})", "["}) {
    EXPECT_EQ(Post(server, "/tokenize", wrong)->status, 400) << wrong;
  }
  for (const char* wrong : {"{}", R"({"tokens":"x"})", R"({"tokens":[-1]})"}) {
    EXPECT_EQ(Post(server, "/detokenize", wrong)->status, 400) << wrong;
  }
}

// Whatever a client combines, it is answered.
TEST(Server, TakesEveryCombinationOfSpaOptions) {
  Server server(TestEngine(), TestOptions());
  const std::vector<OptionInfo>& table = FindCache("spa").options;
  for (const std::string& identifier : FindOption(table, "identifier")->choices) {
    for (const std::string& preset : FindOption(table, "preset")->choices) {
      for (const std::string& scope : FindOption(table, "scope")->choices) {
        for (const char* focus : {"on", "off"}) {
          const Json body = {{"prompt", "not ( True ) is"},
                             {"max_tokens", 8},
                             {"block_length", 4},
                             {"cache", "spa"},
                             {"cache_options",
                              {{"identifier", identifier},
                               {"preset", preset},
                               {"scope", scope},
                               {"focus", focus}}}};
          const auto result = Post(server, "/v1/completions", body.dump());
          ASSERT_TRUE(result);
          EXPECT_EQ(result->status, 200) << body << result->body;
        }
      }
    }
  }
}

TEST(Server, ReturnsWhatACanvasGrewBy) {
  ServerOptions options = TestOptions();
  options.limits.max_tokens = 32;
  Server server(TestEngine(), options);
  const auto ask = [&](size_t grow_to) {
    const Json body = {{"prompt", "To be"},
                       {"max_tokens", 8},
                       {"block_length", 8},
                       {"eos", "never"},
                       {"grow_to", grow_to}};
    return Post(server, "/v1/completions", body.dump());
  };
  EXPECT_GT(Json::parse(ask(32)->body)["usage"]["completion_tokens"], 8);
  const auto refused = ask(40);  // the server's limit holds for what may be grown, too
  EXPECT_EQ(refused->status, 400);
  EXPECT_NE(refused->body.find("more than the 32 tokens"), std::string::npos) << refused->body;
}

TEST(Server, StreamsTheTextItWouldAnswer) {
  Server server(TestEngine(), TestOptions());
  const std::string whole = Content(Ask(server, ChatBody("not ( True ) is")));
  const auto result =
      Ask(server, ChatBody("not ( True ) is", {{"stream", true},
                                               {"stream_diffusion", true},
                                               {"stream_options", {{"include_usage", true}}}}));
  bool done = false;
  std::string text, reason;
  size_t frames = 0, usages = 0;
  for (const Json& event : Events(result->body, &done)) {
    if (event["choices"].empty()) {
      EXPECT_GT(event["usage"]["completion_tokens"], 0);
      ++usages;
      continue;
    }
    const Json& choice = event["choices"][0];
    if (choice["delta"].contains("content")) text += choice["delta"]["content"];
    if (!choice["finish_reason"].is_null()) reason = choice["finish_reason"];
    if (event.contains("dlm") && event["dlm"].contains("frame")) {
      const Json& frame = event["dlm"]["frame"];
      EXPECT_EQ(frame["step"], ++frames);
      EXPECT_EQ(frame["tokens"].size(), 32u);
      EXPECT_EQ(frame["rows"].size(), TestEngine().config().num_layers);
    }
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(text, whole);
  EXPECT_FALSE(reason.empty());
  EXPECT_GT(frames, 0u);
  EXPECT_EQ(usages, 1u);
}

TEST(Server, AnswersDoNotDependOnTheBatch) {
  Server server(TestEngine(), TestOptions());
  std::vector<std::string> bodies, alone;
  for (const char* question : {"not ( True ) is", "True and False or True is", "not not False is",
                               "( False or True ) is"}) {
    for (const char* cache : {"none", "spa", "dllm"}) {
      bodies.push_back(ChatBody(question, {{"cache", cache}, {"temperature", 0.5}, {"seed", 3}}));
    }
  }
  for (const std::string& body : bodies) alone.push_back(Content(Ask(server, body)));
  std::vector<std::string> together(bodies.size());
  std::vector<std::thread> clients;
  for (size_t i = 0; i < bodies.size(); ++i) {
    clients.emplace_back([&, i] { together[i] = Content(Ask(server, bodies[i])); });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(together, alone);
}

TEST(Server, WantsItsKey) {
  ServerOptions options = TestOptions();
  options.api_keys = {"secret", "second"};
  Server server(TestEngine(), options);
  auto client = Connect(server);
  EXPECT_EQ(client.Get("/health")->status, 200);
  EXPECT_EQ(client.Get("/v1/models")->status, 401);
  const auto status = [&](const httplib::Headers& headers) {
    return client.Get("/v1/models", headers)->status;
  };
  EXPECT_EQ(status({{"Authorization", "Bearer secret"}}), 200);
  EXPECT_EQ(status({{"X-Api-Key", "second"}}), 200);
  for (const char* wrong :
       {"Bearer", "Bearer secre", "Bearer secrets", "Bearer SECRET", "Bearer secretsecret"}) {
    EXPECT_EQ(status({{"Authorization", wrong}}), 401) << wrong;
  }
}

TEST(Server, RefusesPagesOfOtherHosts) {
  Server server(TestEngine(), TestOptions());
  auto client = Connect(server);
  const auto status = [&](const httplib::Headers& headers) {
    return client.Get("/v1/models", headers)->status;
  };
  EXPECT_EQ(status({{"Origin", "http://evil.example"}}), 403);
  const std::string own = "127.0.0.1:" + std::to_string(server.port());
  EXPECT_EQ(status({{"Origin", "http://" + own}}), 200);
  // A name that only looks like an address, rebound to this machine.
  const std::string rebound = "127.evil.example:" + std::to_string(server.port());
  EXPECT_EQ(status({{"Host", rebound}, {"Origin", "http://" + rebound}}), 403);
}

TEST(Server, EndsAsSoonAsItHasBegun) {
  for (int i = 0; i < 50; ++i) Server(TestEngine(), TestOptions());
}

TEST(Server, APortIsNotShared) {
  ServerOptions options = TestOptions();
  const Server server(TestEngine(), options);
  options.port = server.port();
  EXPECT_THROW(Server(TestEngine(), options), Error);
}

TEST(Server, FullQueueSaysWhenToComeBack) {
  ServerOptions options = TestOptions();
  options.scheduler = {.parallel = 1, .queue = 2};
  Server server(TestEngine(), options);
  std::atomic<int> answered{0}, refused{0}, other{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&] {
      const auto result = Ask(
          server, ChatBody("True is", {{"max_tokens", 64}, {"cache", "none"}, {"eos", "never"}}));
      if (!result) {
        ++other;
      } else if (result->status == 200) {
        ++answered;
      } else if (result->status == 429 && result->has_header("Retry-After")) {
        ++refused;
      } else {
        ++other;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(other, 0);
  EXPECT_GE(answered, 2);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(answered + refused, 12);
}

TEST(Server, ADisconnectFreesThePlace) {
  ServerOptions options = TestOptions();
  options.scheduler.parallel = 1;
  Server server(TestEngine(), options);
  const std::string body = ChatBody("True is", {{"max_tokens", 960},
                                                {"cache", "none"},
                                                {"stream", true},
                                                {"stream_diffusion", true},
                                                {"eos", "never"}});
  // Leaves after the first bytes.
  httplib::Request request;
  request.method = "POST";
  request.path = "/v1/chat/completions";
  request.body = body;
  request.set_header("Content-Type", "application/json");
  request.content_receiver = [](const char*, size_t, uint64_t, uint64_t) { return false; };
  {
    auto client = Connect(server);
    client.send(request);
  }
  EXPECT_TRUE(Becomes(server, "dlm_requests_cancelled_total", 1.0));
  EXPECT_NE(Content(Ask(server, ChatBody("not True is"))), "(failed)");
}

TEST(Server, ShutdownTellsEverybody) {
  ServerOptions options = TestOptions();
  options.scheduler = {.parallel = 2, .queue = 16};
  auto server = std::make_unique<Server>(TestEngine(), options);
  std::atomic<int> told{0}, finished{0}, lost{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&, stream = i % 2 == 0] {
      const auto result = Ask(
          *server,
          ChatBody("True is",
                   {{"max_tokens", 960}, {"cache", "none"}, {"stream", stream}, {"eos", "never"}}));
      if (!result) {
        ++lost;
      } else if (result->status == 503) {
        ++told;
      } else if (stream) {
        bool done = false;
        const auto events = Events(result->body, &done);
        const bool error = !events.empty() && events.back().contains("error");
        ++(error ? told : done ? finished : lost);
      } else {
        ++(Json::accept(result->body) ? finished : lost);
      }
    });
  }
  while (Metric(*server, "dlm_requests_running") < 2.0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  server->Shutdown(std::chrono::milliseconds(100));
  for (std::thread& client : clients) client.join();
  server.reset();
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(finished, 0) << "960 steps were waited for";
  EXPECT_EQ(told, 6);
}

}  // namespace
}  // namespace spa
