// Hidden rows have no effect, and a canvas may grow, under every cache.
#include <gtest/gtest.h>

#include "tests/test_model.h"

namespace spa {
namespace {

const std::string kModel = SPA_TEST_DATA "/mini.gguf";

// Runs steps over `length[i]` visible rows of a sequence that has room for `capacity`; returns all
// logits of the wanted rows.
std::vector<float> LogitsOfRun(TestModel& model, const PolicyFactory& policy, size_t capacity,
                               const std::vector<size_t>& lengths) {
  const size_t prompt = 10, block_end = 18, vocab = model.file.config().vocab_rows;
  std::vector<TokenId> ids(capacity, model.file.config().mask_id);
  std::vector<uint8_t> masked(capacity, 1);
  for (size_t i = 0; i < prompt; ++i) {
    ids[i] = static_cast<TokenId>(290 + 3 * i);
    masked[i] = 0;
  }
  SequenceState state(model.file.config(), capacity, prompt, KvType::kF32, policy());
  std::vector<float> all;
  std::vector<uint32_t> changed;
  for (size_t step = 0; step < lengths.size(); ++step) {
    const RowSet wanted = RowSet::Range(prompt, block_end);
    const size_t first = all.size();
    all.resize(first + wanted.size() * vocab);
    SequenceStep one{&state,
                     {.ids = ids,
                      .masked = masked,
                      .prompt_length = prompt,
                      .block_begin = prompt,
                      .block_end = block_end,
                      .step = step,
                      .step_in_block = step,
                      .visible = RowSet::All(lengths[step]),
                      .changed = RowSet(changed),
                      .wanted = wanted}};
    model.transformer.Step({&one, 1}, [&](size_t, uint32_t row, std::span<float> logits) {
      std::ranges::copy(logits,
                        all.begin() + static_cast<ptrdiff_t>(first + (row - prompt) * vocab));
    });
    std::vector<uint32_t> positions(wanted.begin(), wanted.end());
    state.policy().EndStep(positions, std::vector<float>(positions.size(), 0.5f));
    changed = {static_cast<uint32_t>(prompt + step)};
    ids[prompt + step] = static_cast<TokenId>(300 + step);
    masked[prompt + step] = 0;
  }
  return all;
}

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

TEST(VisibleRows, HiddenRowsDoNotExist) {
  TestModel model(kModel);
  for (const CacheInfo& cache : Caches()) {
    const PolicyFactory policy = model.Policy(cache.name);
    EXPECT_EQ(LogitsOfRun(model, policy, 26, {26, 26, 26, 26}),
              LogitsOfRun(model, policy, 64, {26, 26, 26, 26}))
        << cache.name;
  }
}

TEST(VisibleRows, ACanvasThatGrowsIsExactWithAFullBudget) {
  TestModel model(kModel);
  const std::vector<size_t> lengths = {18, 18, 26, 41, 41, 64};
  const std::vector<float> exact = LogitsOfRun(model, model.Policy("none"), 64, lengths);
  for (const CacheInfo& cache : Caches()) {
    EXPECT_EQ(LogitsOfRun(model, model.Policy(cache.name, Words(cache.full_options)), 64, lengths),
              exact)
        << cache.name;
    // With its default budget, too, rows that become visible are computed.
    EXPECT_EQ(LogitsOfRun(model, model.Policy(cache.name), 64, lengths).size(), exact.size());
  }
}

}  // namespace
}  // namespace spa
