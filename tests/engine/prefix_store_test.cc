// Requests that begin with the same tokens share keys and values, and answer as if they did not.
#include "engine/prefix_store.h"

#include <gtest/gtest.h>

#include "engine/runner.h"

namespace spa::prefix_store_test {
namespace {

constexpr size_t kPlenty = size_t{1} << 30;

class Prefixes {
 public:
  explicit Prefixes(const std::string& family, size_t threads = 2)
      : engine({.model = SPA_TEST_DATA "/families/" + family + "/model",
                .threads = threads,
                .kv_type = KvType::kF32,
                .progress = {}}),
        cache(engine.PrepareCache({.name = "block", .options = {}})),
        options(engine.DefaultDecodeOptions()) {
    options.block_length = 16;
    options.gen_length = options.steps = 32;
    if (options.sub_block_length > 0) options.sub_block_length = 4;
    options.block_attention = true;
    options.stop = Stop::kNever;
  }

  GenerationRequest Request(const std::vector<TokenId>& prompt, PrefixStore* store) const {
    return {.prompt = prompt,
            .decode = options,
            .cache = cache,
            .warm_from = nullptr,
            .prefixes = store};
  }
  std::unique_ptr<Generation> Run(const std::vector<TokenId>& prompt, PrefixStore* store) {
    return RunAlone(engine, Request(prompt, store));
  }
  std::vector<TokenId> Prompt(size_t length, TokenId seed) const {
    std::vector<TokenId> ids;
    const auto rows = static_cast<TokenId>(engine.config().vocab_rows - 40);
    for (size_t i = 0; i < length; ++i) {
      ids.push_back((seed + static_cast<TokenId>(i * i + 3 * i)) % rows);
    }
    return ids;
  }

  Engine engine;
  SharedCache cache;
  DecodeOptions options;
};

std::vector<TokenId> Ids(const Generation& generation) {
  const auto ids = generation.decoder().ids();
  return {ids.begin(), ids.end()};
}

std::vector<TokenId> Joined(std::vector<TokenId> ids, const std::vector<TokenId>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

class PrefixStoreOf : public testing::TestWithParam<const char*> {};

// A conversation: each prompt is the one before, its answer and a new question.
TEST_P(PrefixStoreOf, TurnsOfAChatAnswerAsWithoutIt) {
  Prefixes test(GetParam());
  PrefixStore store(kPlenty);
  std::vector<TokenId> prompt = test.Prompt(37, 1);
  const bool from_start = test.options.blocks_from_start;
  for (TokenId turn = 0; turn < 3; ++turn) {
    const auto alone = test.Run(prompt, nullptr);
    auto reusing = test.Run(prompt, &store);
    EXPECT_EQ(Ids(*reusing), Ids(*alone)) << "turn " << turn;
    EXPECT_EQ(alone->Stats().reused_tokens, 0u);
    const GenerationStats stats = reusing->Stats();
    if (turn == 0) {
      EXPECT_EQ(stats.reused_tokens, 0u);
    } else if (from_start) {
      // All of the turn before but its last block, whose last tokens were never computed.
      EXPECT_GE(stats.reused_tokens + 3 * test.options.block_length, prompt.size());
      EXPECT_GT(stats.reused_tokens, 31u);
      EXPECT_LT(stats.rows_computed, alone->Stats().rows_computed);
    }
    EXPECT_EQ(stats.reused_tokens % (from_start ? test.options.block_length : 1), 0u);
    prompt = Joined(Ids(*reusing), test.Prompt(11 + static_cast<size_t>(turn), 5));
    store.Keep(std::move(reusing), test.engine.pool());
    // Blocks that are counted from the prompt's end are others in every turn.
    if (from_start) {
      EXPECT_EQ(store.size(), 1u) << "the turn before is the beginning of this one";
    }
  }
}

// Requests that share only their beginning, alone and together, with one thread and with two.
TEST_P(PrefixStoreOf, RequestsWithOnePrefixAnswerAsWithoutIt) {
  Prefixes test(GetParam(), 2), one_thread(GetParam(), 1);
  const std::vector<TokenId> system = test.Prompt(40, 7);
  std::vector<std::vector<TokenId>> prompts, expected;
  for (TokenId i = 0; i < 4; ++i) {
    prompts.push_back(Joined(system, test.Prompt(16, 20 + i)));  // one length: A2D's blocks agree
    expected.push_back(Ids(*one_thread.Run(prompts.back(), nullptr)));
  }
  PrefixStore store(kPlenty);
  store.Keep(test.Run(prompts[0], &store), test.engine.pool());
  Runner runner(test.engine);
  std::vector<Generation*> running;
  for (const auto& prompt : prompts) {
    running.push_back(&runner.Add(test.Request(prompt, &store)));
    EXPECT_GE(running.back()->times().reused_tokens, 24u);
  }
  while (!running[0]->done()) runner.Step();
  for (size_t i = 0; i < prompts.size(); ++i) {
    while (!running[i]->done()) runner.Step();
    EXPECT_EQ(Ids(*running[i]), expected[i]) << i;
  }
  // Nothing kept: from one that runs, once it has computed its prompt.
  PrefixStore nothing(0);
  Runner beside(test.engine);
  Generation& first = beside.Add(test.Request(prompts[1], &nothing));
  EXPECT_EQ(first.times().reused_tokens, 0u);
  beside.Step();
  Generation& second = beside.Add(test.Request(prompts[2], &nothing));
  EXPECT_GE(second.times().reused_tokens, 24u);
  while (!first.done() || !second.done()) beside.Step();
  EXPECT_EQ(Ids(first), expected[1]);
  EXPECT_EQ(Ids(second), expected[2]);
}

INSTANTIATE_TEST_SUITE_P(All, PrefixStoreOf,
                         testing::Values("llada2", "sdar", "fast-dllm-v2", "a2d-qwen3"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(PrefixStore, HoldsNoMoreThanItMayAndDropsWhatWasUsedLeastRecently) {
  Prefixes test("sdar");
  const std::vector<TokenId> a = test.Prompt(48, 1), b = test.Prompt(48, 100),
                             c = test.Prompt(48, 200);
  PrefixStore measure(kPlenty);
  measure.Keep(test.Run(a, nullptr), test.engine.pool());
  const size_t one = measure.bytes();
  ASSERT_GT(one, 0u);
  PrefixStore store(2 * one + one / 2);
  store.Keep(test.Run(a, nullptr), test.engine.pool());
  store.Keep(test.Run(b, nullptr), test.engine.pool());
  EXPECT_EQ(store.size(), 2u);
  EXPECT_GT(test.Run(a, &store)->Stats().reused_tokens, 0u);  // b is the oldest now
  store.Keep(test.Run(c, nullptr), test.engine.pool());
  EXPECT_EQ(store.size(), 2u);
  EXPECT_EQ(store.dropped(), 1u);
  EXPECT_LE(store.bytes(), 2 * one + one / 2);
  EXPECT_GT(test.Run(a, &store)->Stats().reused_tokens, 0u);
  EXPECT_EQ(test.Run(b, &store)->Stats().reused_tokens, 0u);
  EXPECT_TRUE(store.DropOldest());
  EXPECT_TRUE(store.DropOldest());
  EXPECT_FALSE(store.DropOldest());
  EXPECT_EQ(store.bytes(), 0u);
}

// Under full attention a prompt's keys and values depend on everything after it.
TEST(PrefixStore, ReusesNothingThatWouldNotBeExact) {
  Prefixes test("sdar");
  const std::vector<TokenId> prompt = test.Prompt(48, 1);
  PrefixStore store(kPlenty);
  store.Keep(test.Run(prompt, nullptr), test.engine.pool());
  test.options.block_length = 8;  // other blocks
  EXPECT_EQ(test.Run(prompt, &store)->Stats().reused_tokens, 0u);
  test.options.block_length = 16;
  test.cache = test.engine.PrepareCache({.name = "spa", .options = {}});
  EXPECT_EQ(test.Run(prompt, &store)->Stats().reused_tokens, 0u);
  PrefixStore full(kPlenty);
  test.options.block_attention = test.options.blocks_from_start = false;
  full.Keep(test.Run(prompt, nullptr), test.engine.pool());
  EXPECT_EQ(full.size(), 0u);
}

}  // namespace
}  // namespace spa::prefix_store_test
