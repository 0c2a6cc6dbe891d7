// The parts of SPA-Cache by themselves: budget, proxies, options.
#include "policies/spa.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "policies/spa_budget.h"
#include "policies/spa_proxy.h"
#include "tests/test_model.h"

namespace spa::spa_test {
namespace {

const std::string kModel = SPA_TEST_DATA "/mini.gguf";

TEST(SpaBudget, EquationFiveHitsItsThreePoints) {
  const auto ratios = BudgetRatios(
      {.peak_layer = 24, .peak_ratio = 0.25, .first_ratio = 0.03, .last_ratio = 0.13}, 32);
  EXPECT_NEAR(ratios[0], 0.03, 1e-12);
  EXPECT_NEAR(ratios[23], 0.25, 1e-12);
  EXPECT_NEAR(ratios[31], 0.13, 1e-12);
  for (size_t i = 1; i < 32; ++i) EXPECT_EQ(ratios[i] > ratios[i - 1], i <= 23) << i;
}

std::vector<size_t> Rows(const std::vector<double>& ratios) {
  std::vector<size_t> rows;
  for (const double ratio : ratios) rows.push_back(BudgetRows(ratio, 256));
  return rows;
}

TEST(SpaBudget, ReferenceBudgetMatchesTheAuthorsCode) {
  EXPECT_EQ(Rows(ReferenceBudgetRatios({24, 0.25, 0.03, 0.13}, 0.25, 0.0625, 32)),
            (std::vector<size_t>{16, 16, 16, 16, 16, 16, 19, 22, 24, 27, 31, 34, 37, 40, 44, 47,
                                 50, 53, 56, 58, 60, 61, 63, 63, 64, 63, 61, 58, 54, 49, 44, 38}));
  EXPECT_EQ(Rows(ReferenceBudgetRatios({14, 0.30, 0.05, 0.25}, 0.25, 0.0625, 28)),
            (std::vector<size_t>{16, 16, 17, 21, 25, 30, 35, 40, 46, 50, 55, 58, 61, 63,
                                 64, 63, 63, 63, 63, 62, 61, 61, 60, 59, 58, 57, 55, 54}));
}

Mat<float> Random(size_t rows, size_t cols, uint64_t seed) {
  Mat<float> m(rows, cols);
  for (size_t i = 0; i < rows; ++i) {
    const RandomStream random(seed, 0, i);
    for (size_t j = 0; j < cols; ++j) {
      // A sum of four uniforms is Gaussian enough.
      m.Row(i)[j] = static_cast<float>(random.Uniform(4 * j) + random.Uniform(4 * j + 1) +
                                       random.Uniform(4 * j + 2) + random.Uniform(4 * j + 3) - 2);
    }
  }
  return m;
}

using Vector = std::vector<double>;

Vector RandomVector(size_t size, uint64_t seed) {
  const RandomStream random(seed, 1, 0);
  Vector v(size);
  for (size_t i = 0; i < size; ++i) v[i] = random.Uniform(i) - 0.5;
  return v;
}

double Dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double Cosine(const Vector& a, const Vector& b) {
  return Dot(a, b) / std::sqrt(Dot(a, a) * Dot(b, b));
}

// m v
Vector Times(const Mat<float>& m, const Vector& v) {
  Vector product(m.rows());
  for (size_t i = 0; i < m.rows(); ++i) {
    product[i] = std::inner_product(v.begin(), v.end(), m.Row(i), 0.0);
  }
  return product;
}

// m^T v
Vector TransposedTimes(const Mat<float>& m, const Vector& v) {
  Vector product(m.cols());
  for (size_t i = 0; i < m.rows(); ++i) {
    for (size_t j = 0; j < m.cols(); ++j) product[j] += v[i] * m.Row(i)[j];
  }
  return product;
}

// m + scale a b^T
void AddOuter(Mat<float>& m, double scale, const Vector& a, const Vector& b) {
  for (size_t i = 0; i < m.rows(); ++i) {
    for (size_t j = 0; j < m.cols(); ++j) {
      m.Row(i)[j] = static_cast<float>(m.Row(i)[j] + scale * a[i] * b[j]);
    }
  }
}

// A matrix with these singular values: they are its diagonal, until it is reflected many times on
// both sides, which does not change them.
Mat<float> WithSingularValues(size_t rows, size_t cols, const Vector& values) {
  Mat<float> m(rows, cols);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) m.Row(i)[j] = i == j ? static_cast<float>(values[i]) : 0.0f;
  }
  for (uint64_t round = 0; round < 20; ++round) {
    const Vector left = RandomVector(rows, 2 * round), right = RandomVector(cols, 2 * round + 1);
    AddOuter(m, -2.0 / Dot(left, left), left, TransposedTimes(m, left));
    AddOuter(m, -2.0 / Dot(right, right), Times(m, right), right);
  }
  return m;
}

TEST(SpaProxy, TopSingularValuesAreWithinOnePercent) {
  ThreadPool pool(2);
  struct Case {
    size_t rows, cols, rank;
  };
  // The last two are iterated, not exact.
  for (const Case& c :
       {Case{48, 160, 16}, Case{128, 64, 20}, Case{640, 600, 40}, Case{700, 1100, 64}}) {
    // As flat as a spectrum gets: the largest values of a random square matrix, whose law is a
    // quarter circle.
    Vector exact(std::min(c.rows, c.cols));
    double energy = 0.0;
    for (size_t i = 0; i < exact.size(); ++i) {
      const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(exact.size());
      exact[i] = 2.0 - 1.77 * std::pow(share, 2.0 / 3.0);
      energy += exact[i] * exact[i];
    }
    const LayerProxy proxy = TruncatedSvd(WithSingularValues(c.rows, c.cols, exact), c.rank, pool);
    for (size_t i = 0; i < c.rank; ++i) {
      EXPECT_NEAR(proxy.singular_values[i] / exact[i], 1.0, 0.01) << c.rows << " " << i;
    }
    EXPECT_NEAR(proxy.energy, energy, 1e-3 * energy);
  }
}

TEST(SpaProxy, SimilaritiesObeyTheTheoremInTheSpanOfTheProxy) {
  ThreadPool pool(2);
  const Mat<float> w = Random(96, 128, 3);
  for (const size_t rank : {8, 32, 95}) {
    const LayerProxy proxy = TruncatedSvd(w, rank, pool);
    for (uint64_t trial = 0; trial < 50; ++trial) {
      // h in the span of the right singular vectors: combinations of the rows of W_r.
      const Vector h1 = TransposedTimes(proxy.projection, RandomVector(rank, 2 * trial));
      const Vector h2 = TransposedTimes(proxy.projection, RandomVector(rank, 2 * trial + 1));
      const double of_values = Cosine(Times(w, h1), Times(w, h2));
      const double of_proxies = Cosine(Times(proxy.projection, h1), Times(proxy.projection, h2));
      EXPECT_LE(std::abs(of_values - of_proxies), proxy.SimilarityBound() + 1e-5);
      // In that span the proxy loses nothing at all. Outside it the bound grows by a factor that
      // depends on h (lemma_test.cc).
      EXPECT_NEAR(of_values, of_proxies, 1e-3);
    }
  }
}

TEST(SpaProxy, AtFullRankItIsTheValueProjectionUpToRotation) {
  ThreadPool pool(2);
  const Mat<float> w = Random(40, 96, 9);
  const LayerProxy proxy = TruncatedSvd(w, 40, pool);
  // W^T W = W_r^T W_r, column by column.
  double difference = 0.0, whole = 0.0;
  for (size_t j = 0; j < w.cols(); ++j) {
    Vector unit(w.cols());
    unit[j] = 1.0;
    const Vector a = TransposedTimes(w, Times(w, unit));
    const Vector b = TransposedTimes(proxy.projection, Times(proxy.projection, unit));
    for (size_t i = 0; i < a.size(); ++i) difference += (a[i] - b[i]) * (a[i] - b[i]);
    whole += Dot(a, a);
  }
  EXPECT_LT(std::sqrt(difference), 1e-3 * std::sqrt(whole));
  EXPECT_NEAR(proxy.RetainedEnergy(), 1.0, 1e-4);
  EXPECT_EQ(proxy.SimilarityBound(), 0.0);
}

TEST(SpaProxy, WhereOthersWaitOnlyStoredProxiesOfALargeModelAreUsed) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "spa_proxy_wait_test";
  std::filesystem::remove_all(folder);
  ASSERT_EQ(setenv("XDG_CACHE_HOME", folder.c_str(), 1), 0);
  TestModel model(kModel);
  PolicyContext context{
      .file = &model.file, .weights = &model.weights, .pool = &model.pool, .progress = {}};
  const CacheSpec spec{.name = "spa", .options = {{"rank", "16"}}};
  context.max_proxy_weights = 10 * 128 * 128 - 1;
  EXPECT_THROW(PrepareCache(spec, context), Error);
  EXPECT_FALSE(std::filesystem::exists(ProxyPath(model.file, 16)));
  context.max_proxy_weights += 1;
  EXPECT_NO_THROW(PrepareCache(spec, context));
  context.max_proxy_weights = 0;
  EXPECT_NO_THROW(PrepareCache(spec, context)) << "they are stored now";
}

TEST(SpaProxy, StoredProxiesAreReadBackAndDamageMeansRebuilding) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "spa_proxy_test";
  std::filesystem::remove_all(folder);
  ASSERT_EQ(setenv("XDG_CACHE_HOME", folder.c_str(), 1), 0);
  ThreadPool pool(2);
  const ModelFile file = ModelFile::Open(kModel);
  const Proxies made = LoadOrComputeProxies(file, 16, pool);
  const auto path = ProxyPath(file, 16);
  ASSERT_TRUE(std::filesystem::exists(path));
  int computed = 0;
  const auto count = [&](double) { ++computed; };
  const Proxies read = LoadOrComputeProxies(file, 16, pool, count);
  EXPECT_EQ(computed, 0) << "a good file is used";
  EXPECT_EQ(std::memcmp(read.layers[3].projection.data(), made.layers[3].projection.data(),
                        16 * 128 * sizeof(float)),
            0);
  std::filesystem::resize_file(path, 1000);
  LoadOrComputeProxies(file, 16, pool, count);
  EXPECT_GT(computed, 0) << "a torn file is made anew";
  EXPECT_NO_THROW(ReadProxies(path, file, 16));
  EXPECT_THROW(ReadProxies(path, file, 8), Error);
}

TEST(SpaOptions, WrongOnesAreRefusedWithWhatIsAllowed) {
  TestModel model(kModel, 1);
  const auto message = [&](const std::string& option) -> std::string {
    try {
      model.Policy("spa", {option});
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message("rank=129").find("beyond the model's 128"), std::string::npos);
  EXPECT_NE(message("rho=0").find("from 0.0001 to 1"), std::string::npos);
  EXPECT_NE(message("rho=1.5").find("from 0.0001 to 1"), std::string::npos);
  EXPECT_NE(message("rho=nan").find("a number"), std::string::npos);
  EXPECT_NE(message("identifier=values").find("singular, value, key"), std::string::npos);
  EXPECT_NE(message("rang=8").find("did you mean 'rank'"), std::string::npos);
  EXPECT_NE(message("refresh-gen=2.5").find("whole"), std::string::npos);
  EXPECT_EQ(message("rank=128"), "accepted");
  EXPECT_THROW(model.Policy("spa-cache"), Error);
}

TEST(SpaPolicy, RowsPerLayerFollowTheBudgetAndRefreshesAreOnTime) {
  TestModel model(kModel);
  const std::vector<TokenId> prompt(20, 300);
  for (const std::string first_layer : {"attention", "dense", "proxy"}) {
    const auto generation =
        model.Start(prompt, Greedy(40, 40),
                    model.Policy("spa", {"rho=0.25", "min-drift=0", "refresh-prompt=6",
                                         "refresh-gen=3", "first-layer=" + first_layer}));
    generation->state().trace = true;
    Generation* one = generation.get();
    for (size_t step = 0; step < 14; ++step) {
      StepTogether(model.transformer, {&one, 1});
      for (size_t layer = 0; layer < model.file.config().num_layers; ++layer) {
        const size_t rows = generation->state().traced_rows[layer].size();
        const bool last = layer + 1 == model.file.config().num_layers;  // only rows that are read
        const bool dense = layer == 0 && first_layer == "dense";
        const size_t expected = last                     ? 40 - step
                                : step % 6 == 0          ? 60
                                : step % 3 == 0 || dense ? 40
                                                         : 10;
        EXPECT_EQ(rows, expected) << first_layer << " " << step << " " << layer;
      }
    }
  }
}

// Only rows with a new token are projected in the first layer, and that is all it takes: its
// queries, keys and values are those of a sequence that starts with the tokens now there.
TEST(SpaPolicy, FirstLayerProjectsChangedTokensOnly) {
  TestModel model(kModel);
  const auto cached =
      model.Start(std::vector<TokenId>(20, 300), Greedy(24, 8), model.Policy("spa", {"rho=0.1"}));
  Generation* one = cached.get();
  std::vector<TokenId> ids;
  for (size_t step = 0; step < 20; ++step) {
    ids.assign(cached->decoder().ids().begin(), cached->decoder().ids().end());
    StepTogether(model.transformer, {&one, 1});
  }
  const size_t num_rows = ids.size();
  ids.pop_back();  // a mask: the canvas of the other
  const auto fresh = model.Start(ids, Greedy(1, 1), model.Policy("spa", {"scope=all"}));
  Generation* other = fresh.get();
  StepTogether(model.transformer, {&other, 1});
  const size_t width = model.file.config().kv_dim();
  std::vector<float> a(width), b(width);
  for (size_t row = 0; row < num_rows; ++row) {
    cached->state().kv(0).LoadKey(row, a.data());
    fresh->state().kv(0).LoadKey(row, b.data());
    EXPECT_EQ(a, b) << "key of row " << row;
    cached->state().kv(0).LoadValue(row, a.data());
    fresh->state().kv(0).LoadValue(row, b.data());
    EXPECT_EQ(a, b) << "value of row " << row;
    if (row < 20) continue;  // none is kept of the prompt
    const auto query = [&](Generation& g) {
      std::vector<float> values(model.file.config().q_dim(0));
      g.state().queries(0).Load(static_cast<uint32_t>(row), values.data());
      return values;
    };
    EXPECT_EQ(query(*cached), query(*fresh)) << "query of row " << row;
  }
}

// Rows are chosen by their attention output in every layer, and only rows whose input moved are
// projected for it: choosing so is exact. (With form=output a row's input is its kept output, bit
// by bit; under form=update it differs in rounding.)
TEST(SpaPolicy, RowsThatDidNotMoveNeedNoProjection) {
  struct ProjectsAll : SpaPolicy {
    using SpaPolicy::SpaPolicy;
    LayerPlan PlanLayer(LayerView& view) override {
      LayerPlan plan = SpaPolicy::PlanLayer(view);
      plan.k_rows = plan.v_rows = plan.live;
      plan.q_rows.reset();
      return plan;
    }
  };
  TestModel model(kModel);
  const PolicyContext context{
      .file = &model.file, .weights = &model.weights, .pool = &model.pool, .progress = {}};
  const CacheSpec spec{.name = "spa", .options = {{"rho", "0.1"}, {"form", "output"}}};
  OptionReader reader(spec, SpaOptionTable());
  const std::shared_ptr<const SpaModel> prepared = PrepareSpa(reader, context);
  const std::vector<TokenId> prompt(20, 300);
  const auto some =
      model.Start(prompt, Greedy(24, 8), model.Policy("spa", {"rho=0.1", "form=output"}));
  const auto all =
      model.Start(prompt, Greedy(24, 8), [&] { return std::make_unique<ProjectsAll>(prepared); });
  Generation* both[] = {some.get(), all.get()};
  for (size_t step = 0; step < 20; ++step) StepTogether(model.transformer, both);
  EXPECT_EQ(TestModel::Answer(*some), TestModel::Answer(*all));
  EXPECT_LT(some->state().kv_rows_computed, all->state().kv_rows_computed / 2);
  std::vector<float> a(model.file.config().kv_dim()), b(a.size());
  for (size_t layer = 0; layer + 1 < model.file.config().num_layers; ++layer) {
    for (size_t row = 0; row < 44; ++row) {
      some->state().kv(layer).LoadKey(row, a.data());
      all->state().kv(layer).LoadKey(row, b.data());
      EXPECT_EQ(a, b) << "key of row " << row << " in layer " << layer;
    }
  }
}

// Rows are left out of attention only if they would not have been recomputed.
TEST(SpaPolicy, TheScreenChangesNoRow) {
  TestModel model(kModel);
  const std::vector<TokenId> prompt(20, 300);
  for (const std::string drift : {"min-drift=0.001", "min-drift=0.02"}) {
    for (const bool window : {false, true}) {
      DecodeOptions options = Greedy(160, 32);
      if (window) options.window = 40;
      const auto with = model.Start(prompt, options, model.Policy("spa", {drift}));
      const auto without = model.Start(prompt, options, model.Policy("spa", {drift, "screen=off"}));
      Generation* both[] = {with.get(), without.get()};
      for (Generation* generation : both) generation->state().trace = true;
      for (size_t step = 0; step < 50; ++step) {
        StepTogether(model.transformer, both);
        EXPECT_EQ(with->state().traced_rows, without->state().traced_rows) << step;
      }
      EXPECT_EQ(TestModel::Answer(*with), TestModel::Answer(*without));
      EXPECT_LT(with->state().rows_attended, without->state().rows_attended);
    }
  }
}

// Of the rows that are read, those surest in the last step come first: they are settled next.
TEST(SpaPolicy, TheSurestRowsGoFirst) {
  TestModel model(kModel);
  const std::vector<TokenId> prompt(20, 300);
  const auto generation =
      model.Start(prompt, Greedy(40, 40), model.Policy("spa", {"rho=0.1", "min-drift=0"}));
  generation->state().trace = true;
  Generation* one = generation.get();
  size_t in_surest_half = 0, chosen = 0;
  for (size_t step = 0; step < 12; ++step) {
    std::vector<std::pair<float, uint32_t>> sure;  // before the step, that is of the last one
    const Decoder& decoder = generation->decoder();
    if (step > 0) {
      for (size_t i = 0; i < decoder.positions().size(); ++i) {
        if (!decoder.masked()[decoder.positions()[i]]) continue;
        sure.emplace_back(-decoder.candidates()[i].probability, decoder.positions()[i]);
      }
      std::ranges::sort(sure);
      sure.resize(sure.size() / 2);
    }
    StepTogether(model.transformer, {&one, 1});
    if (step == 0) continue;
    for (const uint32_t row : generation->state().traced_rows[1]) {
      if (!decoder.masked()[row]) continue;
      ++chosen;
      for (const auto& [p, position] : sure) in_surest_half += position == row;
    }
  }
  EXPECT_GT(chosen, 0u);
  EXPECT_EQ(in_surest_half, chosen);
}

TEST(SpaPolicy, RowsOutsideOfTheBlockCompeteEverySecondStep) {
  TestModel model(kModel);
  const std::vector<TokenId> prompt(20, 300);
  const size_t layers = model.file.config().num_layers;
  for (const bool outside : {false, true}) {
    const auto generation = model.Start(
        prompt, Greedy(40, 8),
        model.Policy("spa", {"rho=0.1", "min-drift=0", outside ? "outside=2" : "outside=0"}));
    generation->state().trace = true;
    Generation* one = generation.get();
    size_t before = 0, behind = 0;
    for (size_t step = 0; step < 24; ++step) {
      StepTogether(model.transformer, {&one, 1});
      if (step == 0) continue;
      const bool begins = step % 8 == 0;
      const auto block_begin = static_cast<uint32_t>(20 + step / 8 * 8);
      for (size_t layer = 0; layer < layers; ++layer) {
        const bool last = layer + 1 == layers;  // only rows that are read
        const RowSet& rows = generation->state().traced_rows[layer];
        // A block that begins is computed whole, beyond the budget of 3 rows: a tenth of four
        // blocks.
        const uint32_t end = outside && step % 2 == 0 && !last ? 60 : block_begin + 8;
        before += rows.Between(0, block_begin).size();
        behind += rows.Between(block_begin + 8, 60).size();
        if (outside && step % 2 == 1) {
          EXPECT_GE(rows[0], block_begin) << step << " " << layer;
        }
        EXPECT_LT(rows[rows.size() - 1], end) << step << " " << layer;
        if (begins) {
          EXPECT_EQ(rows.Between(block_begin, end).size(), end - block_begin)
              << step << " " << layer;
        } else if (layer > 0 && !last) {
          EXPECT_EQ(rows.size(), 3u) << step << " " << layer;
        }
      }
    }
    EXPECT_GT(before, 0u);
    EXPECT_EQ(behind > 0, outside);
  }
}

// Remembers in which steps the rows of the last position entered the first layer.
class WatchesTheEnd : public CachePolicy {
 public:
  WatchesTheEnd(std::unique_ptr<CachePolicy> policy, std::vector<size_t>* steps)
      : policy_(std::move(policy)), steps_(steps) {}
  Keeps keeps() const override { return policy_->keeps(); }
  IdentifierShape IdentifierOf(const ModelConfig& config, size_t layer) const override {
    return policy_->IdentifierOf(config, layer);
  }
  RowSet BeginStep(const StepInput& step) override {
    RowSet rows = policy_->BeginStep(step);
    if (rows[rows.size() - 1] + 1 == step.num_rows()) steps_->push_back(step.step);
    return rows;
  }
  LayerPlan PlanLayer(LayerView& view) override { return policy_->PlanLayer(view); }
  std::optional<RowSet> AfterAttention(const AttentionView& view) override {
    return policy_->AfterAttention(view);
  }
  void EndStep(std::span<const uint32_t> positions, std::span<const float> confidence) override {
    policy_->EndStep(positions, confidence);
  }

 private:
  std::unique_ptr<CachePolicy> policy_;
  std::vector<size_t>* steps_;
};

TEST(SpaPolicy, QuietRowsOutsideOfTheBlockCompeteLessOften) {
  TestModel model(kModel);
  const auto steps_of = [&](const char* min_drift) {
    std::vector<size_t> steps;
    const PolicyFactory make = model.Policy("spa", {min_drift, "outside=2"});
    const auto generation = model.Start(std::vector<TokenId>(20, 300), Greedy(96, 32), [&] {
      return std::make_unique<WatchesTheEnd>(make(), &steps);
    });
    Generation* one = generation.get();
    for (size_t step = 0; step < 52; ++step) StepTogether(model.transformer, {&one, 1});
    return steps;
  };
  // Nothing moves so far. The second block begins with step 32.
  EXPECT_EQ(steps_of("min-drift=2"), (std::vector<size_t>{0, 2, 6, 14, 30, 32, 48}));
  EXPECT_EQ(steps_of("min-drift=0").size(), 26u) << "all compete: every second step";
}

TEST(SpaPolicy, RowsOutsideOfTheBlockWaitForTokensNotForSteps) {
  TestModel model(kModel);
  const PolicyFactory make = model.Policy("spa", {"min-drift=0", "outside=4"});
  for (const size_t tokens_per_step : {1, 2, 4}) {
    std::vector<size_t> steps;
    DecodeOptions options = Greedy(96, 32);
    options.steps = 96 / tokens_per_step;
    const auto generation = model.Start(std::vector<TokenId>(20, 300), options, [&] {
      return std::make_unique<WatchesTheEnd>(make(), &steps);
    });
    Generation* one = generation.get();
    for (size_t step = 0; step < 8; ++step) StepTogether(model.transformer, {&one, 1});
    EXPECT_EQ(steps.size(), 2 * tokens_per_step) << "every fourth token";
  }
}

TEST(SpaPolicy, RowsOutsideOfTheBlockCompeteAtEveryTokenIfTheFileLetsThePromptCompete) {
  TestModel model(SPA_MODELS_DIR "/minidream.gguf");
  ASSERT_TRUE(model.file.config().spa_prompt);
  const PolicyFactory make = model.Policy("spa", {"min-drift=0"});
  std::vector<size_t> steps;
  const auto generation = model.Start(std::vector<TokenId>(20, 300), Greedy(64, 32), [&] {
    return std::make_unique<WatchesTheEnd>(make(), &steps);
  });
  Generation* one = generation.get();
  for (size_t step = 0; step < 8; ++step) StepTogether(model.transformer, {&one, 1});
  EXPECT_EQ(steps.size(), 8u);
}

// Left to right a step has room for the row just settled and one more, however long the canvas.
TEST(SpaPolicy, LeftToRightComputesTwoRows) {
  TestModel model(kModel);
  const std::vector<TokenId> prompt(20, 300);
  for (const size_t canvas : {16, 64}) {
    const auto generation =
        model.Start(prompt, Greedy(canvas, 1), model.Policy("spa", {"rho=0.25"}));
    generation->state().trace = true;
    Generation* one = generation.get();
    for (size_t step = 0; step < 12; ++step) {
      StepTogether(model.transformer, {&one, 1});
      if (step == 0) continue;
      for (const RowSet& rows : generation->state().traced_rows) {
        EXPECT_LE(rows.size(), 2u) << canvas << " " << step;
      }
    }
  }
}

// With shifted logits the row before a position is read. The position's own row is a mask that
// nothing reads yet.
TEST(SpaPolicy, LeftToRightWithShiftedLogitsTheBlocksOwnRowWaits) {
  TestModel model(SPA_TEST_DATA "/tiny-dream-F32.gguf");
  ASSERT_TRUE(model.file.config().logit_shift);
  const auto generation = model.Start(std::vector<TokenId>(12, 5), Greedy(16, 1),
                                      model.Policy("spa", {"rho=0.75", "min-drift=0"}));
  generation->state().trace = true;
  Generation* one = generation.get();
  StepTogether(model.transformer, {&one, 1});
  size_t most = 0;
  while (!generation->done()) {
    const auto masked = generation->decoder().masked();
    const auto open = static_cast<uint32_t>(std::ranges::find(masked, 1) - masked.begin());
    StepTogether(model.transformer, {&one, 1});
    for (const RowSet& rows : generation->state().traced_rows) {
      ASSERT_FALSE(rows.empty());
      EXPECT_EQ(rows[rows.size() - 1] + 1, open);
      most = std::max(most, rows.size());
    }
  }
  EXPECT_EQ(most, 3u) << "the budget is spent on rows before it";
}

TEST(SpaPolicy, RowsOfThePromptCompeteWithThoseOutsideOfTheBlock) {
  TestModel model(kModel);
  for (const bool prompt : {false, true}) {
    const auto generation = model.Start(std::vector<TokenId>(20, 300), Greedy(40, 8),
                                        model.Policy("spa", {"rho=0.5", "min-drift=0", "outside=2",
                                                             prompt ? "prompt=on" : "prompt=off"}));
    generation->state().trace = true;
    Generation* one = generation.get();
    size_t computed = 0;
    for (size_t step = 0; step < 24; ++step) {
      StepTogether(model.transformer, {&one, 1});
      if (step == 0) continue;
      for (const RowSet& rows : generation->state().traced_rows) {
        const size_t of_prompt = rows.Between(0, 20).size();
        if (step % 2 == 1) {
          EXPECT_EQ(of_prompt, 0u) << step;
        }
        computed += of_prompt;
      }
    }
    EXPECT_EQ(computed > 0, prompt);
  }
}

TEST(SpaPolicy, RowsThatAreReadAndRowsJustSettledGoFirst) {
  TestModel model(kModel);
  const std::vector<TokenId> prompt(20, 300);
  size_t outside[2] = {};
  for (const bool focus : {false, true}) {
    const auto generation = model.Start(prompt, Greedy(40, 40),
                                        model.Policy("spa", {"rho=0.1", "min-drift=0", "scope=all",
                                                             focus ? "focus=on" : "focus=off"}));
    generation->state().trace = true;
    Generation* one = generation.get();
    for (size_t step = 0; step < 20; ++step) {
      const auto settled = generation->decoder().changed();
      RowSet first(std::vector<uint32_t>(settled.begin(), settled.end()));
      for (uint32_t row = 20; row < 60; ++row) {
        if (generation->decoder().masked()[row]) first = first.Union(RowSet::Range(row, row + 1));
      }
      StepTogether(model.transformer, {&one, 1});
      for (size_t layer = 1; step > 0 && layer < model.file.config().num_layers; ++layer) {
        outside[focus] += generation->state().traced_rows[layer].Without(first).size();
      }
    }
  }
  EXPECT_GT(outside[0], 0u);
  EXPECT_EQ(outside[1], 0u);
}

TEST(SpaPolicy, RowsThatHardlyMovedKeepWhatTheyHave) {
  TestModel model(kModel);
  const std::vector<TokenId> prompt(20, 300);
  const auto rows_of_steps = [&](const char* min_drift) {
    const auto generation =
        model.Start(prompt, Greedy(40, 40), model.Policy("spa", {"rho=0.25", min_drift}));
    generation->state().trace = true;
    Generation* one = generation.get();
    size_t rows = 0;
    for (size_t step = 0; step < 12; ++step) {
      StepTogether(model.transformer, {&one, 1});
      if (step > 0) rows += generation->state().traced_rows[1].size();
    }
    return rows;
  };
  EXPECT_EQ(rows_of_steps("min-drift=0"), 11 * 10u);
  const size_t some = rows_of_steps("min-drift=0.01");
  EXPECT_LT(some, 11 * 10u);
  EXPECT_GT(some, 11u);
  // No cosine is below -1: only the row whose token is new is left.
  EXPECT_EQ(rows_of_steps("min-drift=2"), 11u);
}

TEST(SpaPolicy, TheBudgetGrowsWithTheTokensAStepSettles) {
  TestModel model(kModel);
  const std::vector<TokenId> prompt(20, 300);
  for (const bool per_token : {false, true}) {
    DecodeOptions four_at_once = Greedy(40, 40);
    four_at_once.steps = 10;
    const auto generation =
        model.Start(prompt, four_at_once,
                    per_token ? model.Policy("spa", {"rho=0.1"})
                              : model.Policy("spa", {"preset=paper", "rho=0.1", "scope=reach"}));
    generation->state().trace = true;
    Generation* one = generation.get();
    for (size_t step = 0; step < 6; ++step) {
      StepTogether(model.transformer, {&one, 1});
      if (step == 0) continue;
      EXPECT_EQ(generation->state().traced_rows[1].size(), per_token ? 16u : 4u) << step;
    }
  }
}

TEST(SpaPolicy, AWarmStartSkipsThePromptAndASameSequenceStaysExact) {
  TestModel model(kModel);
  std::vector<TokenId> prompt;
  for (TokenId id = 300; id < 330; ++id) prompt.push_back(id);
  const PolicyFactory policy = model.Policy("spa", {"refresh-prompt=8"});
  const auto cold = model.Start(prompt, Greedy(32, 32), policy);
  Generation* one = cold.get();
  StepTogether(model.transformer, {&one, 1});
  const auto warm = model.Start(prompt, Greedy(32, 32), policy);
  ASSERT_TRUE(warm->state().AdoptPrefix(cold->state(), prompt.size(), model.pool));
  one = warm.get();
  StepTogether(model.transformer, {&one, 1});
  EXPECT_EQ(warm->rows_computed(), 32 * model.file.config().num_layers);
  // The donor saw the very same canvas: from the first step on, and when the prompt is refreshed,
  // there is no difference.
  EXPECT_EQ(TestModel::Answer(*warm), TestModel::Answer(*cold));
  Generation* both[] = {cold.get(), warm.get()};
  while (!cold->done()) StepTogether(model.transformer, both);
  EXPECT_TRUE(warm->done());
  EXPECT_EQ(TestModel::Answer(*warm), TestModel::Answer(*cold));
  const auto other = model.Start(prompt, Greedy(32, 32), model.Policy("none"));
  EXPECT_FALSE(other->state().AdoptPrefix(cold->state(), prompt.size(), model.pool));
}

// As in a conversation: the donor has settled its answer, but never computed the tokens of its last
// step. Keys of the first layer depend on their own token alone, so none may be stale.
TEST(SpaPolicy, AWarmStartComputesWhatTheDonorOnlySettled) {
  TestModel model(kModel);
  const std::vector<TokenId> prompt(20, 300);
  const PolicyFactory policy = model.Policy("spa");
  DecodeOptions options = Greedy(32, 32);
  options.threshold = 0.3;
  const auto donor = model.Start(prompt, options, policy);
  Generation* one = donor.get();
  while (!donor->done()) StepTogether(model.transformer, {&one, 1});
  std::vector<TokenId> longer(donor->decoder().ids().begin(), donor->decoder().ids().end());
  const size_t common = longer.size();
  longer.push_back(301);
  const auto warm = model.Start(longer, options, policy);
  ASSERT_TRUE(warm->state().AdoptPrefix(donor->state(), common, model.pool));
  const auto cold = model.Start(longer, options, policy);
  Generation* both[] = {warm.get(), cold.get()};
  StepTogether(model.transformer, both);
  EXPECT_LT(warm->rows_computed(), cold->rows_computed());
  std::vector<float> a(model.file.config().kv_dim()), b(a.size());
  for (size_t row = 0; row < longer.size(); ++row) {
    warm->state().kv(0).LoadKey(row, a.data());
    cold->state().kv(0).LoadKey(row, b.data());
    EXPECT_EQ(a, b) << row;
  }
}

TEST(SpaPolicy, CacheMemoryIsTheArithmeticOfWhatItKeeps) {
  TestModel model(kModel);
  const auto bytes = [&](const std::vector<std::string>& options) {
    const auto generation =
        model.Start(std::vector<TokenId>(24, 300), Greedy(40, 40), model.Policy("spa", options));
    Generation* one = generation.get();
    StepTogether(model.transformer, {&one, 1});
    return generation->cache_bytes();
  };
  // Keys and values of all rows; updates of the answer's, but in the last layer.
  const size_t kept = 4 * (10 * 64 * (128 + 128) + 9 * 40 * 128);
  // When each row was last recomputed in each layer, and how sure the decoder was of it.
  const size_t times = 4 * 64, confidence = 4 * 64;
  // Queries and attention outputs of the answer's rows, these in 16 bits.
  const size_t followed = kept + 9 * 40 * 128 * (4 + 2) + 9 * times + confidence;
  EXPECT_EQ(bytes({"screen=off"}), followed);
  // Of each of these rows two sketches, the sum of its weights, and what is known of them.
  const size_t heads = model.file.config().num_heads;
  EXPECT_EQ(bytes({}), followed + 9 * 40 * (heads * 17 * 4 + 2) + 128 * 4);
  // In the first layer only; proxies in the others.
  EXPECT_EQ(bytes({"rank=16"}),
            kept + 40 * 128 * (4 + 2) + 9 * 40 * 16 * 4 + 10 * times + confidence);
}

}  // namespace
}  // namespace spa::spa_test
