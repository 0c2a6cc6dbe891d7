// The rows that each rival cache recomputes, step by step, on hand-made cases; what the methods
// have in common with the uncached model and with each other; batches and parallel decoding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "tests/test_model.h"
#include "tests/tiny_model.h"

namespace spa::rivals_test {
namespace {

std::vector<std::string> Words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

RowSet Rows(std::vector<uint32_t> rows) { return RowSet(std::move(rows)); }

// A sequence whose tokens settle where the test says. prompt rows [0, prompt), then `gen` masks.
class Script {
 public:
  Script(TestModel& model, const std::string& cache, const std::string& options, size_t prompt,
         size_t gen, size_t block)
      : model_(model),
        prompt_(prompt),
        block_(block),
        ids_(prompt + gen, model.file.config().mask_id),
        masked_(prompt + gen, 0),
        state_(model.file.config(), prompt + gen,
               SequenceState::PromptRows(model.file.config(), prompt), KvType::kF32,
               model.Policy(cache, Words(options))()) {
    state_.trace = true;
    for (size_t i = 0; i < prompt; ++i) ids_[i] = static_cast<TokenId>(7 + 5 * i % 50);
    std::fill(masked_.begin() + static_cast<ptrdiff_t>(prompt), masked_.end(), 1);
  }

  // Runs one step, then settles `positions`. The decoder wants every open position of the block,
  // or, when the order is known ahead, only those.
  const std::vector<RowSet>& Step(const std::vector<uint32_t>& positions,
                                  bool known_ahead = false) {
    const size_t shift = model_.file.config().logit_shift ? 1 : 0;
    std::vector<uint32_t> open, wanted;
    for (size_t pos = begin_; pos < begin_ + block_; ++pos) {
      if (masked_[prompt_ + pos]) open.push_back(static_cast<uint32_t>(prompt_ + pos));
    }
    if (known_ahead) open = positions;
    for (const uint32_t pos : open) wanted.push_back(static_cast<uint32_t>(pos - shift));
    SequenceStep one{&state_,
                     {.ids = ids_,
                      .masked = masked_,
                      .prompt_length = prompt_,
                      .block_begin = prompt_ + begin_,
                      .block_end = prompt_ + begin_ + block_,
                      .step = step_,
                      .step_in_block = step_in_block_,
                      .shift = shift,
                      .visible = all(),
                      .changed = RowSet(changed_),
                      .wanted = RowSet(wanted)}};
    logits_.assign(wanted.size(), {});
    model_.transformer.Step({&one, 1}, [&](size_t, uint32_t row, std::span<float> values) {
      const auto index = std::ranges::find(wanted, row) - wanted.begin();
      logits_[static_cast<size_t>(index)].assign(values.begin(), values.end());
    });
    for (const uint32_t pos : positions) {
      ids_[pos] = static_cast<TokenId>(3 + pos % 40);
      masked_[pos] = 0;
    }
    changed_ = positions;
    std::vector<float> confidence(open.size(), 0.5f);
    if (!confidence_.empty()) {
      for (size_t i = 0; i < open.size(); ++i) confidence[i] = confidence_[open[i]];
    }
    state_.policy().EndStep(open, confidence);
    ++step_;
    ++step_in_block_;
    const auto block_masks =
        std::count(masked_.begin() + static_cast<ptrdiff_t>(prompt_ + begin_),
                   masked_.begin() + static_cast<ptrdiff_t>(prompt_ + begin_ + block_), 1);
    if (block_masks == 0 && prompt_ + begin_ + block_ < ids_.size()) {
      begin_ += block_;
      step_in_block_ = 0;
    }
    return state_.traced_rows;
  }
  RowSet all() const { return RowSet::All(ids_.size()); }
  const std::vector<std::vector<float>>& logits() const { return logits_; }
  void SetConfidence(std::vector<float> per_position) { confidence_ = std::move(per_position); }
  SequenceState& state() { return state_; }

 private:
  TestModel& model_;
  size_t prompt_, block_, begin_ = 0, step_ = 0, step_in_block_ = 0;
  std::vector<TokenId> ids_;
  std::vector<uint8_t> masked_;
  std::vector<uint32_t> changed_;
  std::vector<float> confidence_;
  SequenceState state_;
  std::vector<std::vector<float>> logits_;
};

TestModel& Llada() {
  static TestModel model(TinyModel("llada"));
  return model;
}
TestModel& Dream() {
  static TestModel model(TinyModel("dream"));
  return model;
}

TEST(DllmCache, RefreshesPromptAndAnswerAtTheirIntervals) {
  Script run(Llada(), "dllm", "prompt-interval=4 gen-interval=3 rho=0.25", 3, 8, 8);
  const RowSet gen = RowSet::Range(3, 11);
  for (uint32_t step = 0; step < 7; ++step) {
    const auto& layers = run.Step({3 + step});
    EXPECT_EQ(layers[0], run.all());  // the first layer is dense at every step
    for (size_t layer = 1; layer < layers.size(); ++layer) {
      const RowSet prompt = RowSet::Range(0, step % 4 == 0 ? 3 : 0);
      EXPECT_EQ(layers[layer].Without(gen), prompt) << step;
      EXPECT_EQ(layers[layer].Intersect(gen).size(), step % 3 == 0 ? 8u : 2u) << step;
    }
  }
}

// A layer whose value vectors the test makes up: row r points at angle[r].
class AngledValues : public LayerView {
 public:
  AngledValues(std::vector<double> angles, ThreadPool& threads) : angles_(std::move(angles)) {
    pool = &threads;
    layer = 1;
  }
  MatView<const float> Normed(const RowSet&) override { return {}; }
  MatView<const float> Values(const RowSet& rows) override {
    values_.Resize(rows.size(), 2);
    for (size_t i = 0; i < rows.size(); ++i) {
      values_.Row(i)[0] = static_cast<float>(std::cos(angles_[rows[i]]));
      values_.Row(i)[1] = static_cast<float>(std::sin(angles_[rows[i]]));
    }
    return values_.View();
  }

 private:
  std::vector<double> angles_;
  Mat<float> values_;
};

TEST(DllmCache, PicksTheRowsWhoseValuesTurnedMostSinceTheStepBefore) {
  ThreadPool& pool = Llada().pool;
  const auto policy = Llada().Policy("dllm", Words("prompt-interval=3 gen-interval=100 rho=0.5"))();
  const size_t num_rows = 6;  // two of the prompt, four of the answer
  const std::vector<TokenId> ids(num_rows, 1);
  const std::vector<uint8_t> masked = {0, 0, 1, 1, 1, 1};
  KvCache kv(num_rows, 1, 2, KvType::kF32);
  AngledValues previous({0, 0, 0, 0, 0, 0}, pool);
  kv.StoreValues(RowSet::All(num_rows), previous.Values(RowSet::All(num_rows)), pool);
  for (const size_t step : {1, 3}) {
    StepInput input;
    input.ids = ids;
    input.masked = masked;
    input.prompt_length = 2;
    input.step = step;
    input.visible = RowSet::All(num_rows);
    AngledValues view({3, 3, 0.2, 0.1, 0.3, 0.2}, pool);  // the prompt does not compete
    view.step = &input;
    view.kv = &kv;
    EXPECT_EQ(policy->BeginStep(input), RowSet::All(num_rows));
    const LayerPlan plan = policy->PlanLayer(view);
    const RowSet prompt = RowSet::Range(0, step == 3 ? 2 : 0);
    EXPECT_EQ(plan.out_rows, prompt.Union(Rows({2, 4})));  // of the tied rows 2 and 5 the lower
    EXPECT_EQ(plan.k_rows, plan.out_rows);
    EXPECT_EQ(plan.v_rows, prompt.Union(RowSet::Range(2, 6)));  // all values of the answer
    EXPECT_EQ(plan.live, RowSet::All(num_rows));
  }
}

TEST(DllmCache, WithoutShareOnlyTheFirstLayerRunsBetweenRefreshes) {
  for (TestModel* model : {&Llada(), &Dream()}) {
    Script run(*model, "dllm", "prompt-interval=100 gen-interval=3 rho=0", 3, 8, 8);
    run.Step({5});
    EXPECT_EQ(run.Step({6})[1], RowSet());
    run.Step({7});
    EXPECT_EQ(run.Step({8})[1], RowSet::Range(3, 11));
  }
}

TEST(FastDllm, RecomputesTheBlockAndWhatFollows) {
  Script prefix(Llada(), "fast-prefix", "", 3, 8, 4), dual(Llada(), "fast-dual", "", 3, 8, 4);
  const std::vector<std::vector<uint32_t>> settled = {{4}, {3}, {5, 6}, {8}, {7, 10}, {9}};
  for (size_t step = 0; step < settled.size(); ++step) {
    const auto& of_prefix = prefix.Step(settled[step]);
    const auto& of_dual = dual.Step(settled[step]);
    const bool start = step == 0 || step == 3;
    const size_t begin = step < 3 ? 3 : 7;
    for (size_t layer = 0; layer + 1 < of_prefix.size(); ++layer) {  // the last: wanted rows only
      EXPECT_EQ(of_prefix[layer], start ? prefix.all() : RowSet::Range(begin, 11)) << step;
      EXPECT_EQ(of_dual[layer], start ? dual.all() : RowSet::Range(begin, begin + 4)) << step;
    }
  }
}

TEST(FastDllm, ShiftedModelKeepsTheRowBeforeTheBlockWhileItIsNeeded) {
  Script run(Dream(), "fast-dual", "", 3, 8, 4);
  run.Step({5});
  EXPECT_EQ(run.Step({3})[0], RowSet::Range(2, 7));  // position 3 is open: row 2 predicts it
  EXPECT_EQ(run.Step({4})[0], RowSet::Range(3, 7));
}

TEST(FastDllm, DualIsPrefixInTheLastBlock) {
  Script prefix(Llada(), "fast-prefix", "", 3, 8, 8), dual(Llada(), "fast-dual", "", 3, 8, 8);
  for (const uint32_t pos : {6, 3, 10, 4}) {
    EXPECT_EQ(prefix.Step({pos}), dual.Step({pos}));
    EXPECT_EQ(prefix.logits(), dual.logits());
  }
}

TEST(DkvDecode, FreezesATokenOneStepAfterItSettled) {
  Script run(Llada(), "dkv-decode", "interval=4", 3, 8, 8);
  EXPECT_EQ(run.Step({5})[0], run.all());
  EXPECT_EQ(run.Step({7, 8})[0], run.all());                  // the second dense step
  EXPECT_EQ(run.Step({3})[0], Rows({3, 4, 6, 7, 8, 9, 10}));  // 5 is kept
  EXPECT_EQ(run.Step({4})[0], Rows({3, 4, 6, 9, 10}));        // 7, 8 too
  EXPECT_EQ(run.Step({6})[0], run.all());                     // the interval
  EXPECT_EQ(run.Step({9})[0], Rows({6, 9, 10}));
}

TEST(DkvDecode, StartsAnewWithEveryBlock) {
  Script run(Llada(), "dkv-decode", "interval=100", 3, 8, 4);
  for (const uint32_t pos : {3, 4, 5, 6}) run.Step({pos});
  EXPECT_EQ(run.Step({7})[0], run.all());
  EXPECT_EQ(run.Step({8})[0], run.all());
  EXPECT_EQ(run.Step({9})[0], Rows({8, 9, 10}));
}

TEST(DkvDecode, ShiftTypesOfDream) {
  const auto third_step = [](const char* options, const std::vector<uint32_t>& first) {
    Script run(Dream(), "dkv-decode", options, 3, 6, 6);
    EXPECT_EQ(run.Step(first)[0], run.all());
    EXPECT_EQ(run.Step({7})[0], RowSet::Range(2, 9));  // row P - 1 stays; the prompt is kept
    return run.Step({3})[0];
  };
  // After step 0 position 5 is known; position 7 is not yet old enough.
  EXPECT_EQ(third_step("interval=9 shift=un", {5}), Rows({2, 3, 5, 6, 7}));  // rows 4 and 8 kept
  EXPECT_EQ(third_step("interval=9 shift=un-right", {5}), Rows({2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(third_step("interval=9 shift=un-right", {5, 6}), Rows({2, 3, 4, 6, 7, 8}));
  // `right` keeps row 5 although it predicts position 6; the decoder wants it, so it is computed.
  EXPECT_EQ(third_step("interval=9 shift=right", {5}), Rows({2, 3, 4, 5, 6, 7, 8}));
}

TEST(DkvDecode, FrozenPromptIsThePrefillAndPdVariant) {
  Script prefill(Dream(), "dkv-decode", "interval=1 freeze-prompt=on", 4, 6, 6);
  prefill.Step({4});
  for (const uint32_t pos : {5, 6, 7}) EXPECT_EQ(prefill.Step({pos})[0], RowSet::Range(3, 10));
  Script pd(Dream(), "dkv-decode", "interval=3 freeze-prompt=on shift=un-right", 4, 6, 6);
  pd.Step({4});
  pd.Step({5});
  EXPECT_EQ(pd.Step({6})[0], RowSet::Range(4, 10));
  EXPECT_EQ(pd.Step({7})[0], RowSet::Range(3, 10));
}

TEST(DkvGreedy, RecomputesNextAndLastPositionsAndAWindow) {
  Script run(Llada(), "dkv-greedy", "interval=3 window=2", 3, 10, 10);
  EXPECT_EQ(run.Step({6}, true)[0], run.all());
  EXPECT_EQ(run.Step({8}, true)[0], Rows({6, 7, 8, 9}));
  EXPECT_EQ(run.Step({7}, true)[0], Rows({5, 7, 8, 9}));  // 6 and 8 are settled: one further
  EXPECT_EQ(run.Step({3}, true)[0], run.all());
  EXPECT_EQ(run.Step({12}, true)[0], Rows({3, 10, 11, 12}));  // nothing open to the right
}

TEST(DkvGreedy, RandomOrderWantsOnlyThePositionsItSettles) {
  DecodeOptions options = Greedy(16, 8);
  options.order = Order::kRandom;
  options.steps = 8;  // two per step
  const auto generation =
      Llada().Start({5, 6, 7, 8}, options, Llada().Policy("dkv-greedy", {"window=0"}));
  generation->state().trace = true;
  Generation* one = generation.get();
  std::vector<uint32_t> last;
  for (size_t step = 0; !generation->done(); ++step) {
    StepTogether(Llada().transformer, {&one, 1});
    const Decoder& decoder = generation->decoder();
    const std::vector<uint32_t> settled(decoder.changed().begin(), decoder.changed().end());
    EXPECT_TRUE(std::ranges::equal(decoder.positions(), settled));
    if (step % 2 == 1) {  // between refreshes
      EXPECT_EQ(generation->state().traced_rows[0], Rows(settled).Union(Rows(last)));
    }
    last = settled;
  }
}

TEST(D2Cache, ChoosesSurePositionsLastSettledAndAttendedRows) {
  Script run(Llada(), "d2", "p=0 k=3 sigma=0", 4, 8, 4);
  run.SetConfidence({0, 0, 0, 0, .1f, .2f, .3f, .4f, .5f, .6f, .7f, .8f});
  EXPECT_EQ(run.Step({4})[0], run.all());
  // Open in the block: 5, 6, 7, all within k. Just settled: 4. p = 0: one more row.
  RowSet rows = run.Step({5, 6})[0];
  EXPECT_TRUE(rows.Includes(Rows({4, 5, 6, 7})));
  EXPECT_EQ(rows.size(), 5u);
  // One open position is left in the block; 8 and 9 follow, whose logits were never read.
  rows = run.Step({7})[0];
  EXPECT_TRUE(rows.Includes(Rows({5, 6, 7, 8, 9})));
  EXPECT_EQ(rows.size(), 6u);
}

TEST(D2Cache, DensityPrefersPositionsNearSettledOnes) {
  // Equal confidence everywhere, all in one block; the decoder wants only one position.
  Script run(Llada(), "d2", "p=0 k=3 sigma=2", 4, 8, 8);
  run.Step({10}, false);
  const RowSet rows = run.Step({4}, true)[0];
  // The prompt is left of 4 and 5; 9 and 11 are next to 10, but 11 has no settled end behind it.
  EXPECT_TRUE(rows.Includes(Rows({4, 5, 10})));
}

TEST(D2Cache, ShareOneTakesAllAndGapsAreFilled) {
  Script all(Llada(), "d2", "p=1 k=1", 4, 8, 8);
  all.Step({4});
  EXPECT_EQ(all.Step({5})[0], all.all());
  Script gaps(Llada(), "d2", "p=0 k=1 inflate=100", 4, 8, 8);
  gaps.Step({4});
  const RowSet rows = gaps.Step({11}, true)[0];
  EXPECT_EQ(rows, RowSet::Range(rows[0], 12));
}

TEST(D2Cache, ShiftedModelComputesTheRowsBefore) {
  Script run(Dream(), "d2", "p=0 k=2 sigma=0", 4, 8, 8);
  run.SetConfidence({0, 0, 0, 0, .9f, .1f, .1f, .8f, .1f, .1f, .1f, .1f});
  run.Step({11});
  const RowSet rows = run.Step({7}, true)[0];
  EXPECT_TRUE(rows.Includes(Rows({3, 6, 11})));
  EXPECT_EQ(rows.size(), 4u);
}

TEST(ElasticCache, ComputesWindowLastSettledAndTrackedRows) {
  for (const bool track : {false, true}) {
    Script run(Llada(), "elastic", track ? "beta=3 gamma=0 track=1" : "beta=3 gamma=0 track=0", 3,
               8, 2);
    EXPECT_EQ(run.Step({4})[0], run.all());
    const RowSet window = Rows({3, 4, 5, 6});  // three open rows, and the one just settled
    auto layers = run.Step({3});
    layers.pop_back();  // of the last layer only what is read is computed
    for (const RowSet& rows : layers) {
      EXPECT_TRUE(rows.Includes(window));
      const RowSet tracked = rows.Without(window);
      EXPECT_EQ(tracked.Intersect(RowSet::Range(3, 11)), RowSet());  // open rows are not tracked
      EXPECT_EQ(tracked.empty(), !track);
    }
  }
}

TEST(ElasticCache, DriftMakesAllLaterLayersDense) {
  for (const char* similarity : {"keys", "heads"}) {
    const std::string options = std::string("beta=2 similarity=") + similarity;
    Script always(Llada(), "elastic", options + " gamma=2", 3, 8, 2);
    Script never(Llada(), "elastic", options + " gamma=0.000001", 3, 8, 2);
    always.Step({4});
    never.Step({4});
    const auto always_rows = always.Step({3}), never_rows = never.Step({3});
    EXPECT_LT(always_rows[0].size(), 11u);
    for (size_t layer = 1; layer < 3; ++layer) {
      EXPECT_EQ(always_rows[layer], always.all());
      EXPECT_EQ(never_rows[layer], never_rows[0]);
    }
    EXPECT_EQ(always_rows[3], Rows({3}));  // of the last layer only what is read
  }
}

// Where nothing has changed, a restart from the kept inputs gives what a dense step gives.
TEST(ElasticCache, RestartFromKeptInputsIsExactWhenTheFirstLayersAre) {
  for (TestModel* model : {&Llada(), &Dream()}) {
    Script elastic(*model, "elastic", "gamma=2 beta=2", 3, 8, 8);
    Script exact(*model, "none", "", 3, 8, 8);
    for (int step = 0; step < 3; ++step) {  // nothing is settled
      elastic.Step({});
      exact.Step({});
      EXPECT_EQ(elastic.logits(), exact.logits());
    }
  }
}

TEST(ElasticCache, WithoutTrackingAndBlocksItIsDkvDecode) {
  Script elastic(Llada(), "elastic", "gamma=0 track=0 block-caching=off", 3, 8, 8);
  Script dkv(Llada(), "dkv-decode", "interval=1000", 3, 8, 8);
  elastic.Step({6});
  dkv.Step({6});
  elastic.Step({3});
  dkv.Step({3});  // its second dense step
  for (const uint32_t pos : {8, 4, 10}) {
    EXPECT_EQ(elastic.Step({pos})[0], dkv.Step({pos})[0]);
  }
}

TEST(Rivals, PromptCachingOfSpaAndDllmIsTheSame) {
  // With every step a refresh of the answer, both leave only the prompt behind.
  Script spa(Llada(), "spa", "preset=reference refresh-gen=1 refresh-prompt=3 rank=4", 3, 8, 8);
  Script dllm(Llada(), "dllm", "gen-interval=1 prompt-interval=3", 3, 8, 8);
  for (const uint32_t pos : {6, 3, 10, 4, 5, 7}) {
    spa.Step({pos});
    dllm.Step({pos});
    EXPECT_EQ(spa.logits(), dllm.logits());
  }
}

TEST(Rivals, BlockOfOneMakesFastDllmExact) {
  for (const char* cache : {"fast-prefix", "fast-dual"}) {
    const DecodeOptions options = Greedy(12, 1);
    EXPECT_EQ(Llada().Generate({5, 6, 7}, options, Llada().Policy(cache)),
              Llada().Generate({5, 6, 7}, options, Llada().Policy("none")));
  }
}

// Every cache with everything a user can combine it with: it finishes, repeats, does not see its
// neighbours in a batch, and its full options are exact.
TEST(Rivals, BatchOfThreeEqualsAlone) {
  const std::vector<std::vector<TokenId>> prompts = {
      {5, 6, 7, 8, 9}, {10, 20, 30, 40, 50, 60, 11, 12}, {1, 2}};
  std::vector<DecodeOptions> modes(5, Greedy(16, 8));
  modes[1].threshold = 0.3;
  modes[2].factor = 1.5;
  modes[3].order = Order::kRandom;
  modes[3].steps = 8;
  modes[4] = Greedy(16, 16);
  modes[4].schedule = Schedule::kTimeGrid;
  modes[4].order = Order::kEntropy;
  for (TestModel* model : {&Llada(), &Dream()}) {
    for (const CacheInfo& cache : Caches()) {
      for (const DecodeOptions& mode : modes) {
        std::vector<std::string> options;
        if (cache.name == "spa") options = {"rank=4"};
        const PolicyFactory policy = model->Policy(cache.name, options);
        std::vector<std::unique_ptr<Generation>> together;
        for (const auto& prompt : prompts) together.push_back(model->Start(prompt, mode, policy));
        model->Finish(together);
        for (size_t i = 0; i < prompts.size(); ++i) {
          EXPECT_EQ(TestModel::Answer(*together[i]), model->Generate(prompts[i], mode, policy))
              << cache.name;
        }
        const PolicyFactory full = model->Policy(cache.name, Words(cache.full_options));
        EXPECT_EQ(model->Generate(prompts[1], mode, full),
                  model->Generate(prompts[1], mode, model->Policy("none")))
            << cache.name;
      }
    }
  }
}

TEST(Rivals, ThresholdAboveOneIsOneTokenPerStep) {
  DecodeOptions one = Greedy(16, 8), threshold = one;
  threshold.threshold = 1.5;
  for (const CacheInfo& cache : Caches()) {
    const PolicyFactory policy =
        Llada().Policy(cache.name, cache.name == "spa" ? Words("rank=4") : Words(""));
    EXPECT_EQ(Llada().Generate({5, 6, 7, 8}, one, policy),
              Llada().Generate({5, 6, 7, 8}, threshold, policy))
        << cache.name;
  }
}

TEST(Rivals, WrongOptionsAreRefused) {
  for (const auto& [cache, option] :
       std::vector<std::pair<std::string, std::string>>{{"dllm", "rho=1.5"},
                                                        {"dllm", "prompt-interval=0"},
                                                        {"dllm", "p=1"},
                                                        {"fast-dual", "interval=2"},
                                                        {"fast-prefix", "refresh=-1"},
                                                        {"dkv-decode", "interval=0"},
                                                        {"dkv-decode", "shift=left"},
                                                        {"dkv-greedy", "window=-2"},
                                                        {"d2", "p=2"},
                                                        {"d2", "k=0"},
                                                        {"d2", "sigma=x"},
                                                        {"elastic", "beta=0"},
                                                        {"elastic", "similarity=rows"},
                                                        {"elastic", "gamma=-1"}}) {
    EXPECT_ANY_THROW(Llada().Policy(cache, {option})) << cache << " " << option;
  }
}

}  // namespace
}  // namespace spa::rivals_test
