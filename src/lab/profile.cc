#include "lab/profile.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "engine/runner.h"
#include "kernels/rows.h"
#include "lab/fit_budget.h"
#include "policies/spa.h"
#include "policies/spa_proxy.h"

namespace spa {
namespace {

constexpr size_t kNumFeatures = kFeatureNames.size();

// Mean cosine over all pairs of different rows, from the sum of the unit vectors.
double MeanPairwiseCosine(MatView<const float> rows) {
  std::vector<double> sum(rows.cols);
  double count = 0.0;
  for (size_t i = 0; i < rows.rows; ++i) {
    double square = 0.0;
    for (size_t j = 0; j < rows.cols; ++j) {
      square += static_cast<double>(rows.Row(i)[j]) * rows.Row(i)[j];
    }
    if (square <= 0.0) continue;
    const double scale = 1.0 / std::sqrt(square);
    for (size_t j = 0; j < rows.cols; ++j) sum[j] += scale * rows.Row(i)[j];
    count += 1.0;
  }
  if (count < 2.0) return 0.0;
  double square = 0.0;
  for (const double s : sum) square += s * s;
  return (square - count) / (count * (count - 1.0));
}

// Sums over prompts and steps.
struct DriftSums {
  struct Cell {
    double rows = 0.0, drifted = 0.0, similarity = 0.0;
  };
  struct Theory {
    double rows = 0.0, error = 0.0, bound = 0.0, ratio = 0.0, moved = 0.0, unseen = 0.0;
  };
  std::vector<std::array<Cell, kNumFeatures>> layers;
  std::vector<Theory> theory;
  std::vector<double> value_cosine, attention_cosine;  // summed over `cosine_steps`
  double cosine_steps = 0.0;
  double tau = 0.95;
  std::vector<SimilarityMap>* maps = nullptr;  // filled for one prompt
};

// |h| / |V_r^T h| of each row, for h = gain * x and the proxy L_r V_r^T h: how much of the row lies
// outside of what the proxy sees.
std::vector<double> OutsideSpan(MatView<const float> x, std::span<const float> gain,
                                MatView<const float> proxy,
                                std::span<const double> singular_values) {
  std::vector<double> ratios(x.rows);
  for (size_t i = 0; i < x.rows; ++i) {
    double whole = 0.0, seen = 0.0;
    for (size_t j = 0; j < x.cols; ++j) whole += std::pow(double{gain[j]} * x.Row(i)[j], 2);
    for (size_t j = 0; j < proxy.cols; ++j) {
      if (singular_values[j] > 0.0) seen += std::pow(proxy.Row(i)[j] / singular_values[j], 2);
    }
    ratios[i] = seen > 0.0 ? std::sqrt(whole / seen) : 0.0;
  }
  return ratios;
}

// Recomputes everything, as `none` does, and compares each feature with the step before.
class DriftPolicy : public CachePolicy {
 public:
  DriftPolicy(DriftSums& sums, const SpaModel& proxies,
              const std::vector<std::vector<double>>& spectra, bool scope_all)
      : sums_(sums), proxies_(proxies), spectra_(spectra), scope_all_(scope_all) {}

  // Outputs are kept so that the last layer runs whole: it is compared too.
  Keeps keeps() const override { return {.kv = false, .reuse = Reuse::kOutput}; }

  RowSet BeginStep(const StepInput& step) override {
    all_ = step.visible;  // the first rows: a canvas grows at its end
    const size_t begin = scope_all_ ? 0 : std::min(step.prompt_length, seen_);
    scope_ = RowSet::Range(begin, seen_);  // rows that the last step had, too
    seen_ = all_.size();
    first_step_ = scope_.empty();
    if (!first_step_) sums_.cosine_steps += 1.0;
    return all_;
  }

  LayerPlan PlanLayer(LayerView& view) override {
    pool_ = view.pool;
    previous_.resize(view.config->num_layers);
    outside_.resize(view.config->num_layers);
    sums_.layers.resize(view.config->num_layers);
    sums_.theory.resize(view.config->num_layers);
    sums_.value_cosine.resize(view.config->num_layers);
    sums_.attention_cosine.resize(view.config->num_layers);
    if (view.layer > 0) Compare(view.layer - 1, Feature::kOutput, view.x);
    Compare(view.layer, Feature::kInput, view.x);
    const PackedMatrix& projection = proxies_.projections[view.layer];
    projected_.Resize(all_.size(), projection.rows());
    rows_.Set(view.x.Rows(0, all_.size()));
    MatMul(rows_, projection, projected_.View(), *pool_);
    Compare(view.layer, Feature::kProxy, projected_.View());
    const std::vector<float> proxy_similarity = similarity_;
    const std::vector<double> before = std::exchange(
        outside_[view.layer], OutsideSpan(view.x.Rows(0, all_.size()), view.weights->attn_norm,
                                          projected_.View(), spectra_[view.layer]));
    const MatView<const float> values = view.Values(all_);
    Compare(view.layer, Feature::kValue, values);
    value_similarity_ = similarity_;
    if (!first_step_) CheckLemma(view.layer, proxy_similarity, before);
    if (!first_step_) sums_.value_cosine[view.layer] += MeanPairwiseCosine(InScope(values));
    LayerPlan plan = LayerPlan::Of(all_);
    plan.ask_after_attention = true;
    return plan;
  }

  // As the identifier attn-output sees it: before the output projection.
  std::optional<RowSet> AfterAttention(const AttentionView& view) override {
    Compare(view.layer, Feature::kAttention, view.heads);
    if (!first_step_) {
      sums_.attention_cosine[view.layer] += MeanPairwiseCosine(InScope(view.heads));
      DriftSums::Theory& theory = sums_.theory[view.layer];
      for (size_t i = 0; i < similarity_.size(); ++i) {
        if (1.0 - similarity_[i] <= TheoryCheck::kMoved) continue;
        theory.moved += 1.0;
        if (1.0 - value_similarity_[i] < TheoryCheck::kStill) theory.unseen += 1.0;
      }
    }
    return {};
  }

  // The residual stream after the last layer.
  void ObserveOutput(MatView<const float> x) { Compare(previous_.size() - 1, Feature::kOutput, x); }

 private:
  MatView<const float> InScope(MatView<const float> all_rows) const {
    return all_rows.Rows(scope_[0], scope_.size());
  }

  // The paper's lemma: the similarity of two proxies is that of the values to within
  // 1/2 (lambda_{r+1} / lambda_r)^2 (|h1| / |V_r^T h1| + |h2| / |V_r^T h2|)^2.
  void CheckLemma(size_t layer, std::span<const float> proxy_similarity,
                  std::span<const double> before) {
    const size_t rank = projected_.cols();
    const std::vector<double>& lambda = spectra_[layer];
    const double next = lambda.size() > rank ? lambda[rank] / lambda[rank - 1] : 0.0;
    DriftSums::Theory& theory = sums_.theory[layer];
    for (size_t i = 0; i < proxy_similarity.size(); ++i) {
      const double error = std::abs(double{proxy_similarity[i]} - value_similarity_[i]);
      const double sum = before[scope_[i]] + outside_[layer][scope_[i]];
      const double bound = 0.5 * next * next * sum * sum;
      theory.rows += 1.0;
      theory.error += error;
      theory.bound += std::min(bound, 2.0);
      // Allow for float32 rounding of two cosines.
      constexpr double kRounding = 1e-5;
      if (bound > 0.0) theory.ratio = std::max(theory.ratio, (error - kRounding) / bound);
    }
  }

  // rows: [num_rows, any width]
  void Compare(size_t layer, Feature feature, MatView<const float> rows) {
    const auto index = static_cast<size_t>(feature);
    Mat<float>& previous = previous_[layer][index];
    if (!first_step_) {
      similarity_.resize(scope_.size());
      CosineRows(InScope(rows), previous.View(), scope_, similarity_, *pool_);
      DriftSums::Cell& cell = sums_.layers[layer][index];
      for (const float s : similarity_) {
        cell.rows += 1.0;
        cell.similarity += s;
        if (s < sums_.tau) cell.drifted += 1.0;
      }
      if (sums_.maps != nullptr && feature == Feature::kOutput) {
        for (SimilarityMap& map : *sums_.maps) {
          if (map.layer != layer) continue;
          map.first_pos = scope_[0];
          map.similarity.push_back(similarity_);
        }
      }
    }
    previous.Resize(rows.rows, rows.cols);
    ScatterRows(rows.Rows(0, all_.size()), all_, previous.View(), *pool_);
  }

  DriftSums& sums_;
  const SpaModel& proxies_;
  const std::vector<std::vector<double>>& spectra_;
  bool scope_all_;
  size_t seen_ = 0;         // rows of the step before
  bool first_step_ = true;  // there is nothing to compare with
  RowSet all_, scope_;
  ThreadPool* pool_ = nullptr;
  std::vector<std::array<Mat<float>, kNumFeatures>> previous_;  // [num_rows, width of the feature]
  Mat<float> projected_;
  Activations rows_;
  std::vector<float> similarity_, value_similarity_;
  std::vector<std::vector<double>> outside_;  // per layer and row, of this step
};

}  // namespace

DriftProfile MeasureDrift(Engine& engine, std::span<const std::vector<TokenId>> prompts,
                          const ProfileOptions& options, const Progress& progress) {
  if (prompts.empty()) throw Error("there are no prompts to profile on");
  const CacheSpec spec{.name = "spa", .options = {{"identifier", "singular"}, {"profile", "off"}}};
  OptionReader reader(spec, SpaOptionTable());
  const auto prepared = PrepareSpa(reader, engine.policy_context());
  const SpaModel& proxies = *prepared;
  DriftSums sums;
  sums.tau = options.tau;
  DriftProfile profile;
  profile.tau = options.tau;
  profile.scope_all = options.scope_all;
  profile.rank = proxies.options.rank;
  profile.num_prompts = prompts.size();
  const size_t last_layer = engine.config().num_layers - 1;
  for (const size_t layer : std::set<size_t>{0, last_layer / 2, last_layer}) {
    profile.maps.push_back({.layer = layer, .first_pos = 0, .similarity = {}});
  }
  for (const LayerProxy& layer :
       LoadOrComputeProxies(engine.file(), proxies.options.rank, engine.pool()).layers) {
    profile.spectra.push_back(layer.singular_values);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    sums.maps = i == 0 ? &profile.maps : nullptr;
    const auto cache = std::make_shared<PreparedCache>();
    cache->make = [&] {
      return std::make_unique<DriftPolicy>(sums, proxies, profile.spectra, options.scope_all);
    };
    const auto generation =
        RunAlone(engine, {prompts[i], options.decode, cache}, [&](Generation& running) {
          if (running.num_states() > 1) throw Error("a profile is made without guidance");
          // The policy that ran; others may be created only to query keeps().
          auto& policy = static_cast<DriftPolicy&>(running.state().policy());
          policy.ObserveOutput(running.state().x().View());
          ++profile.num_steps;
        });
    if (progress) {
      progress("measuring drift", static_cast<double>(i + 1) / static_cast<double>(prompts.size()));
    }
  }
  if (sums.cosine_steps < 1.0) {
    throw Error("every prompt ended after one step: there is nothing to compare");
  }
  for (size_t layer = 0; layer < sums.layers.size(); ++layer) {
    for (size_t f = 0; f < kNumFeatures; ++f) {
      const DriftSums::Cell& cell = sums.layers[layer][f];
      profile.features[f].drifted.push_back(cell.drifted / cell.rows);
      profile.features[f].similarity.push_back(cell.similarity / cell.rows);
    }
    const DriftSums::Theory& theory = sums.theory[layer];
    profile.theory.proxy_error.push_back(theory.error / theory.rows);
    profile.theory.bound.push_back(theory.bound / theory.rows);
    profile.theory.ratio.push_back(theory.ratio);
    profile.theory.unseen.push_back(theory.moved > 0.0 ? theory.unseen / theory.moved : 0.0);
    profile.value_cosine.push_back(sums.value_cosine[layer] / sums.cosine_steps);
    profile.attention_cosine.push_back(sums.attention_cosine[layer] / sums.cosine_steps);
  }
  profile.fitted = options.fitted;
  profile.budget =
      FitBudget(profile.features[static_cast<size_t>(options.fitted)].drifted, &profile.fit_error);
  return profile;
}

std::string ProfileJson(const DriftProfile& p, const ModelFile& file) {
  nlohmann::ordered_json json = {
      {"fingerprint", fmt::format("{:016x}", file.Fingerprint())},
      {"model", file.config().name},
      {"tau", p.tau},
      {"scope", p.scope_all ? "all" : "gen"},
      {"rank", p.rank},
      {"prompts", p.num_prompts},
      {"steps", p.num_steps},
      {"fitted", kFeatureNames[static_cast<size_t>(p.fitted)]},
      {"budget",
       {{"peak_layer", p.budget.peak_layer},
        {"peak_ratio", p.budget.peak_ratio},
        {"first_ratio", p.budget.first_ratio},
        {"last_ratio", p.budget.last_ratio},
        {"mean_ratio", MeanRatio(BudgetRatios(p.budget, p.value_cosine.size()))},
        {"fit_error", p.fit_error}}},
  };
  for (size_t f = 0; f < kNumFeatures; ++f) {
    const std::string name(kFeatureNames[f]);
    json["drift"][name] = p.features[f].drifted;
    json["similarity"][name] = p.features[f].similarity;
  }
  json["pairwise_cosine"] = {{"value", p.value_cosine}, {"attention output", p.attention_cosine}};
  json["theory"] = {{"proxy_error", p.theory.proxy_error},
                    {"lemma_bound", p.theory.bound},
                    {"largest_share_of_bound", p.theory.ratio},
                    {"moved_unseen_by_value", p.theory.unseen}};
  return json.dump(1) + "\n";
}

}  // namespace spa
