// The server promises no more memory than it has, whatever it is asked for.
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "server/memory_account.h"
#include "tests/server/test_server.h"

namespace spa {
namespace {

TEST(MemoryAccount, CountsStatesAndTheLargestWorkspace) {
  const auto work = [](size_t rows) { return WorkspaceBytes(TestEngine(), rows); };
  const size_t limit = work(510) + 5000;
  const MemoryNeed wide{.state = 1000, .rows = 500};
  const MemoryNeed deep{.state = limit - work(10), .rows = 10};  // just fits alone
  MemoryAccount account(TestEngine(), limit);
  EXPECT_EQ(account.promised(), 0u);
  EXPECT_FALSE(account.Take(wide));
  EXPECT_FALSE(account.Fits(wide));
  EXPECT_FALSE(account.Fits(deep));
  EXPECT_FALSE(account.NeverFits(deep));
  account.Return(wide);
  EXPECT_EQ(account.promised(), work(500)) << "the workspace is kept";
  EXPECT_TRUE(account.Take(deep)) << "and has to go";
  EXPECT_EQ(account.promised(), limit);
  EXPECT_TRUE(account.NeverFits({.state = deep.state + 1, .rows = 10}));
}

TEST(ServerMemory, EveryClientIsAnsweredOrToldAndNothingIsOverpromised) {
  ServerOptions options = TestOptions();
  options.scheduler.parallel = 16;
  options.cache = {.name = "dllm", .options = {}};
  // Room for two answers of 32 tokens to a question of about 10.
  const SharedCache cache = TestEngine().PrepareCache(options.cache);
  DecodeOptions decode = TestEngine().DefaultDecodeOptions();
  decode.gen_length = decode.steps = 32;
  const MemoryNeed one = NeedOf(TestEngine(), 16, decode, *cache);
  options.scheduler.memory = 2 * one.state + WorkspaceBytes(TestEngine(), 2 * one.rows);
  Server server(TestEngine(), options);
  std::atomic<int> answered{0}, too_large{0}, other{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&, i, large = i % 4 == 0] {
      const auto result = Ask(server, ChatBody("True is", {{"max_tokens", large ? 960 : 32},
                                                           {"threshold", 0.0},
                                                           {"n", large ? 1 : 3},  // one waits
                                                           {"stream", i % 8 == 0}}));
      if (result && result->status == 200) {
        ++(large ? other : answered);
      } else if (result && result->status == 413) {
        const Json error = Json::parse(result->body)["error"];
        ++(large && error["code"] == "memory_exceeded" ? too_large : other);
      } else {
        ++other;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(answered, 12);
  EXPECT_EQ(too_large, 4);
  EXPECT_EQ(other, 0);
  const double limit = Metric(server, "dlm_memory_limit_bytes");
  EXPECT_EQ(limit, static_cast<double>(options.scheduler.memory));
  EXPECT_LE(Metric(server, "dlm_memory_promised_peak_bytes"), limit);
  EXPECT_GT(Metric(server, "dlm_memory_promised_peak_bytes"), limit / 2);
  EXPECT_EQ(Metric(server, "dlm_memory_refused_total"), 4.0);
  EXPECT_GT(Metric(server, "dlm_memory_waits_total"), 0.0);
}

}  // namespace
}  // namespace spa
