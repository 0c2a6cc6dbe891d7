// The laws hold for every family: a sequence's numbers depend neither on the rest of the batch nor
// on the thread count, and a cache told to recompute every row is the uncached model, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/test_model.h"

namespace spa {
namespace {

constexpr size_t kPrompt = 13, kRows = 40;

struct Sequence {
  Sequence(TestModel& model, const PolicyFactory& policy, TokenId seed)
      : ids(kRows, model.file.config().mask_id),
        masked(kRows, 1),
        state(model.file.config(), kRows, kPrompt - 1, KvType::kF32, policy()) {
    for (size_t i = 0; i < kPrompt; ++i) {
      ids[i] = static_cast<TokenId>((seed + 7 * i) % 200);
      masked[i] = 0;
    }
  }
  std::vector<TokenId> ids;
  std::vector<uint8_t> masked;
  SequenceState state;
  std::vector<uint32_t> changed;
  std::vector<float> logits;  // of all steps
};

// A few steps of all sequences together, in which tokens settle.
void RunSteps(TestModel& model, std::vector<Sequence*> sequences) {
  const size_t vocab = model.file.config().vocab_rows;
  const RowSet wanted = RowSet::Range(kPrompt, kRows);
  for (size_t step = 0; step < 4; ++step) {
    std::vector<SequenceStep> batch;
    for (Sequence* s : sequences) {
      s->logits.resize((step + 1) * wanted.size() * vocab);
      batch.push_back({&s->state,
                       {.ids = s->ids,
                        .masked = s->masked,
                        .prompt_length = kPrompt,
                        .block_begin = kPrompt,
                        .block_end = kRows,
                        .step = step,
                        .step_in_block = step,
                        .visible = RowSet::All(kRows),
                        .changed = RowSet(s->changed),
                        .wanted = wanted}});
    }
    model.transformer.Step(batch, [&](size_t s, uint32_t row, std::span<float> values) {
      const size_t place = (step * wanted.size() + row - kPrompt) * vocab;
      std::ranges::copy(values, sequences[s]->logits.begin() + static_cast<ptrdiff_t>(place));
    });
    for (Sequence* s : sequences) {
      s->state.policy().EndStep({}, {});
      s->changed = {static_cast<uint32_t>(kPrompt + step)};
      s->ids[kPrompt + step] = static_cast<TokenId>(50 + step);
      s->masked[kPrompt + step] = 0;
    }
  }
}

class FamilyLaws : public testing::TestWithParam<std::string> {
 protected:
  std::string Model() const { return SPA_TEST_DATA "/families/" + GetParam() + "/model"; }
};

TEST_P(FamilyLaws, ASequenceDependsNeitherOnTheBatchNorOnThreads) {
  TestModel model(Model(), 2), single(Model(), 1);
  Sequence alone(single, single.Policy("none"), 3);
  RunSteps(single, {&alone});
  Sequence first(model, model.Policy("none"), 5), same(model, model.Policy("none"), 3),
      last(model, model.Policy("none"), 11);
  RunSteps(model, {&first, &same, &last});
  EXPECT_EQ(same.logits, alone.logits);
}

TEST_P(FamilyLaws, AFullBudgetIsTheUncachedModel) {
  TestModel model(Model());
  Sequence exact(model, model.Policy("none"), 3);
  RunSteps(model, {&exact});
  for (const CacheInfo& cache : Caches()) {
    std::istringstream words(cache.full_options);
    const std::vector<std::string> options(std::istream_iterator<std::string>(words), {});
    Sequence cached(model, model.Policy(cache.name, options), 3);
    RunSteps(model, {&cached});
    EXPECT_EQ(cached.logits, exact.logits) << cache.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamilyLaws,
                         testing::Values("a2d-qwen2", "a2d-qwen3", "dreamon", "fast-dllm-v2",
                                         "llada-moe", "llada2", "rnd1", "sdar"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace spa
