// The law every cache obeys: told to recompute every row at every step, it is the uncached model,
// bit for bit. Runs over the registry, so a new policy is covered the moment it is registered.
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "tests/test_model.h"

namespace spa {
namespace {

const std::string kModel = SPA_TEST_DATA "/mini.gguf";

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// All logits of a few steps in which tokens settle.
std::vector<float> LogitsOfSteps(TestModel& model, const PolicyFactory& policy) {
  std::vector<TokenId> ids = {507, 508, 290, 509, 261, 462, 309, 364, 277, 282, 302, 309, 281, 409,
                              510, 508, 293, 509, 261};
  const size_t prompt = ids.size();
  ids.resize(prompt + 16, model.file.config().mask_id);
  std::vector<uint8_t> masked(ids.size(), 0);
  std::fill(masked.begin() + static_cast<ptrdiff_t>(prompt), masked.end(), 1);
  SequenceState state(model.file.config(), ids.size(), KvType::kF32, policy());
  const size_t vocab = model.file.config().vocab_rows;
  std::vector<float> all;
  std::vector<uint32_t> committed;
  for (size_t step = 0; step < 6; ++step) {
    const RowSet wanted = RowSet::Range(prompt, ids.size());
    std::vector<float> logits(wanted.size() * vocab);
    const SequenceStep one{&state, {.ids = ids,
                                    .masked = masked,
                                    .prompt_length = prompt,
                                    .block_begin = prompt,
                                    .block_end = ids.size(),
                                    .step = step,
                                    .step_in_block = step,
                                    .committed = committed,
                                    .wanted = wanted}};
    model.transformer.Step({&one, 1}, [&](size_t, size_t index, std::span<float> row) {
      std::memcpy(logits.data() + index * vocab, row.data(), vocab * sizeof(float));
    });
    state.policy().EndStep({}, {});
    all.insert(all.end(), logits.begin(), logits.end());
    committed = {static_cast<uint32_t>(prompt + step)};
    ids[prompt + step] = static_cast<TokenId>(300 + step);
    masked[prompt + step] = 0;
  }
  return all;
}

TEST(Equivalence, FullBudgetIsTheUncachedModelBitForBit) {
  TestModel model(kModel);
  const std::vector<float> exact = LogitsOfSteps(model, model.Policy("none"));
  for (const CacheInfo& cache : Caches()) {
    const auto logits =
        LogitsOfSteps(model, model.Policy(cache.name, Words(cache.full_options)));
    ASSERT_EQ(logits.size(), exact.size());
    EXPECT_EQ(std::memcmp(logits.data(), exact.data(), exact.size() * sizeof(float)), 0)
        << cache.name;
  }
}

TEST(Equivalence, SpaAtFullBudgetIsExactInEveryVariant) {
  TestModel model(kModel);
  const std::vector<float> exact = LogitsOfSteps(model, model.Policy("none"));
  for (const char* variant :
       {"scope=all", "scope=gen", "form=absolute", "proxy=overwrite kv=full", "identifier=value",
        "identifier=key", "identifier=query", "identifier=attn-input", "identifier=attn-output",
        "first-layer=proxy stale-first=on", "first-layer=dense", "drift=0.5", "preset=paper", "preset=reference"}) {
    auto options = Words(variant);
    options.push_back("rho=1");
    const auto logits = LogitsOfSteps(model, model.Policy("spa", options));
    EXPECT_EQ(std::memcmp(logits.data(), exact.data(), exact.size() * sizeof(float)), 0)
        << variant;
  }
}

}  // namespace
}  // namespace spa
