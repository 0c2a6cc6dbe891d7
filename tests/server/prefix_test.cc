// Keys and values kept across requests: the same answers, within the server's memory.
#include <gtest/gtest.h>

#include <thread>

#include "tests/server/test_server.h"

namespace spa {
namespace {

ServerOptions BlockServer(size_t prefix_memory) {
  ServerOptions options = TestOptions();
  options.cache = {.name = "block", .options = {}};
  options.scheduler.prefix_memory = prefix_memory;
  return options;
}

std::string Body(const Json& messages) {
  return Json({{"messages", messages},
               {"max_tokens", 16},
               {"block_length", 4},
               {"block_attention", true},
               {"seed", 1}})
      .dump();
}

// Two conversations of three turns each; the answers, and what usage says was cached.
struct Talk {
  std::vector<std::string> answers;
  std::vector<size_t> cached;
};
Talk Converse(const Server& server) {
  Talk talk;
  for (const char* first : {"not ( True ) is", "True or False is"}) {
    Json messages = Json::array();
    for (const char* question : {first, "True is", "not False is"}) {
      messages.push_back({{"role", "user"}, {"content", question}});
      const auto result = Ask(server, Body(messages));
      EXPECT_TRUE(result && result->status == 200) << (result ? result->body : "");
      if (!result || result->status != 200) return talk;
      const Json answer = Json::parse(result->body);
      talk.answers.push_back(answer["choices"][0]["message"]["content"]);
      talk.cached.push_back(answer["usage"]["prompt_tokens_details"]["cached_tokens"]);
      messages.push_back({{"role", "assistant"}, {"content", talk.answers.back()}});
    }
  }
  return talk;
}

TEST(ServerPrefixes, AnswersAreTheSameWithAndWithout) {
  Server with(TestEngine(), BlockServer(size_t{1} << 28));
  const Talk reusing = Converse(with);
  EXPECT_GT(Metric(with, "dlm_prefix_hits_total"), 0.0);
  EXPECT_GT(Metric(with, "dlm_prefix_tokens_total"), 0.0);
  EXPECT_GT(Metric(with, "dlm_prefixes_kept"), 0.0);
  EXPECT_GT(Metric(with, "dlm_prefix_bytes"), 0.0);
  with.Shutdown(std::chrono::milliseconds(0));
  Server without(TestEngine(), BlockServer(0));
  const Talk plain = Converse(without);
  ASSERT_EQ(reusing.answers.size(), 6u);
  EXPECT_EQ(reusing.answers, plain.answers);
  EXPECT_EQ(plain.cached, std::vector<size_t>(6, 0));
  EXPECT_GT(*std::ranges::max_element(reusing.cached), 0u);
  EXPECT_EQ(Metric(without, "dlm_prefix_hits_total"), 0.0);
  EXPECT_EQ(Metric(without, "dlm_prefixes_kept"), 0.0);
}

// What is kept gives way to what runs, and everything stays within the memory there is.
TEST(ServerPrefixes, GiveWayToRequests) {
  ServerOptions options = BlockServer(size_t{1} << 30);
  const SharedCache cache = TestEngine().PrepareCache(options.cache);
  DecodeOptions decode = TestEngine().DefaultDecodeOptions();
  decode.gen_length = 64;
  const MemoryNeed one = NeedOf(TestEngine(), 32, decode, *cache);
  options.scheduler.memory = one.state + one.state / 2 + WorkspaceBytes(TestEngine(), one.rows);
  Server server(TestEngine(), options);
  for (int i = 0; i < 8; ++i) {
    std::string question = "True";
    for (int word = 0; word <= i; ++word) question += word % 2 == 0 ? " and True" : " or False";
    const auto result = Ask(server, Body(Json::array({{{"role", "user"}, {"content", question}}})));
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, 200) << result->body;
  }
  EXPECT_GT(Metric(server, "dlm_prefixes_dropped_total"), 0.0);
  EXPECT_LE(Metric(server, "dlm_memory_promised_peak_bytes"),
            static_cast<double>(options.scheduler.memory));
}

}  // namespace
}  // namespace spa
