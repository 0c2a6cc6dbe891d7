// The law every cache obeys: told to recompute every row at every step, it is the uncached model,
// bit for bit. Runs over the registry, so a new policy is covered the moment it is registered.
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "policies/spa_options.h"
#include "tests/test_model.h"

namespace spa {
namespace {

const std::string kModel = SPA_TEST_DATA "/mini.gguf";

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// All logits of a few steps in which tokens settle.
std::vector<float> LogitsOfSteps(TestModel& model, const PolicyFactory& policy,
                                 size_t rows_after_block = 0, KvType type = KvType::kF32) {
  std::vector<TokenId> ids = {507, 508, 290, 509, 261, 462, 309, 364, 277, 282,
                              302, 309, 281, 409, 510, 508, 293, 509, 261};
  const size_t prompt = ids.size();
  const size_t block_end = prompt + 16;
  ids.resize(block_end + rows_after_block, model.file.config().mask_id);
  std::vector<uint8_t> masked(ids.size(), 0);
  std::fill(masked.begin() + static_cast<ptrdiff_t>(prompt), masked.end(), 1);
  SequenceState state(model.file.config(), ids.size(), prompt, type, policy());
  const size_t vocab = model.file.config().vocab_rows;
  std::vector<float> all;
  std::vector<uint32_t> changed;
  for (size_t step = 0; step < 6; ++step) {
    const RowSet wanted = RowSet::Range(prompt, block_end);
    std::vector<float> logits(wanted.size() * vocab);
    SequenceStep one{&state,
                     {.ids = ids,
                      .masked = masked,
                      .prompt_length = prompt,
                      .block_begin = prompt,
                      .block_end = block_end,
                      .step = step,
                      .step_in_block = step,
                      .visible = RowSet::All(ids.size()),
                      .changed = RowSet(changed),
                      .wanted = wanted}};
    model.transformer.Step({&one, 1}, [&](size_t, uint32_t row, std::span<float> values) {
      std::memcpy(logits.data() + (row - prompt) * vocab, values.data(), vocab * sizeof(float));
    });
    state.policy().EndStep({}, {});
    all.insert(all.end(), logits.begin(), logits.end());
    changed = {static_cast<uint32_t>(prompt + step)};
    ids[prompt + step] = static_cast<TokenId>(300 + step);
    masked[prompt + step] = 0;
  }
  return all;
}

TEST(Equivalence, FullBudgetIsTheUncachedModelBitForBit) {
  TestModel model(kModel);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kF16Q8}) {
    const std::vector<float> exact = LogitsOfSteps(model, model.Policy("none"), 0, type);
    for (const CacheInfo& cache : Caches()) {
      const auto logits =
          LogitsOfSteps(model, model.Policy(cache.name, Words(cache.full_options)), 0, type);
      ASSERT_EQ(logits.size(), exact.size());
      EXPECT_EQ(std::memcmp(logits.data(), exact.data(), exact.size() * sizeof(float)), 0)
          << cache.name << " in " << NameOf(type);
    }
  }
}

// Recomputes the rows of a scope at every step after the first and leaves the others alone: what
// SPA-Cache must be when its budget is the whole scope. With kReach that is every second step the
// answer, else the block with what is read and what was just settled.
class WholeScope : public CachePolicy {
 public:
  explicit WholeScope(Scope scope, bool prompt = false) : scope_(scope), prompt_(prompt) {}
  RowSet BeginStep(const StepInput& step) override {
    const bool all = step.step == 0 || scope_ == Scope::kAll || prompt_;
    const size_t first = all ? 0 : step.prompt_length;
    rows_ = RowSet::Range(first, step.num_rows());
    if (scope_ == Scope::kReach && step.step % 2 == 1) {  // outside=2
      rows_ =
          RowSet::Range(step.block_begin, step.block_end).Union(step.wanted.Union(step.changed));
    }
    return rows_;
  }
  LayerPlan PlanLayer(LayerView&) override { return LayerPlan::Of(rows_); }

 private:
  Scope scope_;
  bool prompt_;
  RowSet rows_;
};

TEST(Equivalence, SpaWithAFullBudgetRecomputesItsScopeBitForBit) {
  TestModel model(kModel);
  const std::pair<const char*, Scope> scopes[] = {
      {"scope=gen", Scope::kGen}, {"scope=all", Scope::kAll}, {"scope=reach", Scope::kReach}};
  for (const auto& [name, scope] : scopes) {
    // A canvas that continues after the block distinguishes `gen` from `reach`.
    const auto exact = LogitsOfSteps(
        model, [&scope = scope] { return std::make_unique<WholeScope>(scope); }, 8);
    const auto exact_halves = LogitsOfSteps(
        model, [&scope = scope] { return std::make_unique<WholeScope>(scope); }, 8, KvType::kF16);
    // Halves distinguish a query that was kept from one that was not.
    const auto halves =
        LogitsOfSteps(model, model.Policy("spa", {name, "rho=1", "min-drift=0"}), 8, KvType::kF16);
    EXPECT_EQ(std::memcmp(halves.data(), exact_halves.data(), halves.size() * sizeof(float)), 0)
        << name;
    for (const char* variant :
         {"", "form=output", "proxy=overwrite", "kv=full", "identifier=value", "identifier=key",
          "identifier=query", "identifier=attn-input", "identifier=attn-output",
          "identifier=random", "identifier=age", "identifier=local", "identifier=changed",
          "first-layer=proxy", "first-layer=dense", "focus=off"}) {
      auto options = Words(variant);
      for (const char* more : {name, "rho=1", "min-drift=0", "refresh-prompt=0"})
        options.emplace_back(more);
      const auto logits = LogitsOfSteps(model, model.Policy("spa", options), 8);
      EXPECT_EQ(std::memcmp(logits.data(), exact.data(), exact.size() * sizeof(float)), 0)
          << name << " " << variant;
    }
  }
}

TEST(Equivalence, SpaWithAFullBudgetAndThePromptRecomputesAllEverySecondStepBitForBit) {
  TestModel model(kModel);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kF16Q8}) {
    const auto exact = LogitsOfSteps(
        model, [&] { return std::make_unique<WholeScope>(Scope::kReach, true); }, 8, type);
    const auto logits =
        LogitsOfSteps(model, model.Policy("spa", {"prompt=on", "rho=1", "min-drift=0"}), 8, type);
    EXPECT_EQ(std::memcmp(logits.data(), exact.data(), exact.size() * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace spa
