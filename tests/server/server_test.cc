// The server over loopback: what comes back, that batching changes nothing, limits, shutdown.
#include "server/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "engine/embedded_page.h"
#include "tests/server/test_engine.h"

namespace spa {
namespace {

using Json = nlohmann::json;

ServerOptions Options() {
  ServerOptions options;
  options.port = 0;
  options.model_id = "mini";
  options.version = "test";
  return options;
}

std::string Body(const std::string& question, Json more = Json::object()) {
  more["messages"] = Json::array({{{"role", "user"}, {"content", question}}});
  if (!more.contains("max_tokens")) more["max_tokens"] = 32;
  return more.dump();
}

httplib::Client Connect(const Server& server) {
  httplib::Client client("127.0.0.1", server.port());
  client.set_read_timeout(60);
  return client;
}

httplib::Result Ask(const Server& server, const std::string& body) {
  return Connect(server).Post("/v1/chat/completions", body, "application/json");
}

std::string Content(const httplib::Result& result) {
  if (!result || result->status != 200) return "(failed)";
  return Json::parse(result->body)["choices"][0]["message"]["content"];
}

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

double Metric(const Server& server, const std::string& name) {
  const auto result = Connect(server).Get("/metrics");
  const size_t at = result->body.find("\n" + name + " ");
  return at == std::string::npos ? -1.0 : std::stod(result->body.substr(at + name.size() + 2));
}

TEST(Server, AnswersAndTellsWhatItIs) {
  Server server(TestEngine(), Options());
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
  const auto result = Ask(server, Body("not True is"));
  const Json body = Json::parse(result->body);
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["usage"]["total_tokens"], body["usage"]["prompt_tokens"].get<int>() +
                                               body["usage"]["completion_tokens"].get<int>());
  EXPECT_TRUE(body["choices"][0]["finish_reason"] == "stop" ||
              body["choices"][0]["finish_reason"] == "length");
  EXPECT_EQ(Ask(server, "{")->status, 400);
  EXPECT_EQ(Ask(server, Body("x", {{"cache", "spa"}, {"cache_options", {{"nonsense", 1}}}}))->status,
            400);
}

TEST(Server, StreamsTheTextItWouldAnswer) {
  Server server(TestEngine(), Options());
  const std::string whole = Content(Ask(server, Body("not ( True ) is")));
  const auto result = Ask(server, Body("not ( True ) is", {{"stream", true},
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
  Server server(TestEngine(), Options());
  std::vector<std::string> bodies, alone;
  for (const char* question : {"not ( True ) is", "True and False or True is",
                               "not not False is", "( False or True ) is"}) {
    for (const char* cache : {"none", "spa", "dllm"}) {
      bodies.push_back(Body(question, {{"cache", cache}, {"temperature", 0.5}, {"seed", 3}}));
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
  ServerOptions options = Options();
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
  for (const char* wrong : {"", "secre", "secrets", "SECRET", "secretsecret"}) {
    EXPECT_EQ(status({{"Authorization", std::string("Bearer ") + wrong}}), 401) << wrong;
  }
}

TEST(Server, RefusesPagesOfOtherHosts) {
  Server server(TestEngine(), Options());
  auto client = Connect(server);
  EXPECT_EQ(client.Get("/v1/models", {{"Origin", "http://evil.example"}})->status, 403);
  const std::string own = "127.0.0.1:" + std::to_string(server.port());
  EXPECT_EQ(client.Get("/v1/models", {{"Origin", "http://" + own}})->status, 200);
  // A name that only looks like an address, rebound to this machine.
  const std::string rebound = "127.evil.example:" + std::to_string(server.port());
  EXPECT_EQ(client.Get("/v1/models", {{"Host", rebound}, {"Origin", "http://" + rebound}})->status,
            403);
}

TEST(Server, EndsAsSoonAsItHasBegun) {
  for (int i = 0; i < 50; ++i) Server(TestEngine(), Options());
}

TEST(Server, APortIsNotShared) {
  ServerOptions options = Options();
  const Server server(TestEngine(), options);
  options.port = server.port();
  EXPECT_THROW(Server(TestEngine(), options), Error);
}

TEST(Server, FullQueueSaysWhenToComeBack) {
  ServerOptions options = Options();
  options.scheduler = {.parallel = 1, .queue = 2};
  Server server(TestEngine(), options);
  std::atomic<int> answered{0}, refused{0}, other{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 12; ++i) {
    clients.emplace_back([&] {
      const auto result = Ask(server, Body("True is", {{"max_tokens", 64}, {"cache", "none"},
                                                       {"eos", "never"}}));
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
  ServerOptions options = Options();
  options.scheduler.parallel = 1;
  Server server(TestEngine(), options);
  const std::string body = Body("True is", {{"max_tokens", 960}, {"cache", "none"}, {"stream", true},
                                            {"stream_diffusion", true}, {"eos", "never"}});
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
  for (int i = 0; i < 2400 && Metric(server, "dlm_requests_cancelled_total") < 1.0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  EXPECT_EQ(Metric(server, "dlm_requests_cancelled_total"), 1.0);
  EXPECT_NE(Content(Ask(server, Body("not True is"))), "(failed)");
}

TEST(Server, ShutdownTellsEverybody) {
  ServerOptions options = Options();
  options.scheduler = {.parallel = 2, .queue = 16};
  auto server = std::make_unique<Server>(TestEngine(), options);
  std::atomic<int> told{0}, finished{0}, lost{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&, stream = i % 2 == 0] {
      const auto result = Ask(*server, Body("True is", {{"max_tokens", 960}, {"cache", "none"},
                                                        {"stream", stream}, {"eos", "never"}}));
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
