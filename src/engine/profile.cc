#include "engine/profile.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "engine/report.h"
#include "kernels/rows.h"
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
  std::vector<std::array<Cell, kNumFeatures>> layers;
  std::vector<double> value_cosine, attention_cosine;  // summed over `cosine_steps`
  double cosine_steps = 0.0;
  double tau = 0.95;
  std::vector<SimilarityMap>* maps = nullptr;  // filled for one prompt
};

// Recomputes everything, as no cache does, and compares each feature with the step before.
class DriftPolicy : public CachePolicy {
 public:
  DriftPolicy(DriftSums& sums, const SpaModel& proxies, bool scope_all)
      : sums_(sums), proxies_(proxies), scope_all_(scope_all) {}

  bool keeps_kv() const override { return false; }
  // Also keeps the last layer whole: its outputs are compared too.
  bool wants_attention() const override { return true; }

  RowSet BeginStep(const StepInput& step) override {
    all_ = RowSet::All(step.num_rows());
    scope_ = scope_all_ ? all_ : RowSet::Range(step.prompt_length, step.num_rows());
    first_step_ = step.step == 0;
    if (!first_step_) sums_.cosine_steps += 1.0;
    return all_;
  }

  LayerPlan PlanLayer(LayerView& view) override {
    pool_ = view.pool;
    weights_ = view.weights;
    previous_.resize(view.config->num_layers);
    sums_.layers.resize(view.config->num_layers);
    sums_.value_cosine.resize(view.config->num_layers);
    sums_.attention_cosine.resize(view.config->num_layers);
    if (view.layer > 0) Compare(view.layer - 1, Feature::kOutput, view.x);
    Compare(view.layer, Feature::kInput, view.x);
    const PackedMatrix& projection = proxies_.projections[view.layer];
    projected_.Resize(view.x.rows, projection.rows());
    rows_.Set(view.x);
    MatMul(rows_, projection, projected_.View(), *pool_);
    Compare(view.layer, Feature::kProxy, projected_.View());
    const MatView<const float> values = view.Values(all_);
    Compare(view.layer, Feature::kValue, values);
    if (!first_step_) sums_.value_cosine[view.layer] += MeanPairwiseCosine(InScope(values));
    return {.k_rows = all_, .v_rows = all_, .out_rows = all_, .live = all_};
  }

  void AfterAttention(const AttentionView& view) override {
    projected_.Resize(view.heads.rows, weights_->wo.rows());
    rows_.Set(view.heads);
    MatMul(rows_, weights_->wo, projected_.View(), *pool_);
    Compare(view.layer, Feature::kAttention, projected_.View());
    if (!first_step_) {
      sums_.attention_cosine[view.layer] += MeanPairwiseCosine(InScope(projected_.View()));
    }
  }

  // The residual stream after the last layer.
  void ObserveOutput(MatView<const float> x) {
    Compare(previous_.size() - 1, Feature::kOutput, x);
  }

 private:
  MatView<const float> InScope(MatView<const float> all_rows) const {
    return all_rows.Rows(scope_[0], scope_.size());
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
    ScatterRows(rows, all_, previous.View(), *pool_);
  }

  DriftSums& sums_;
  const SpaModel& proxies_;
  bool scope_all_;
  bool first_step_ = true;
  RowSet all_, scope_;
  ThreadPool* pool_ = nullptr;
  const LayerWeights* weights_ = nullptr;
  std::vector<std::array<Mat<float>, kNumFeatures>> previous_;  // [num_rows, width of the feature]
  Mat<float> projected_;
  Activations rows_;
  std::vector<float> similarity_;
};

}  // namespace

DriftProfile MeasureDrift(Engine& engine, std::span<const std::vector<TokenId>> prompts,
                          const ProfileOptions& options, const Progress& progress) {
  if (prompts.empty()) throw Error("there are no prompts to profile on");
  const auto prepared =
      engine.PrepareCache({.name = "spa", .options = {{"profile", "off"}}})();
  const SpaModel& proxies = dynamic_cast<const SpaPolicy&>(*prepared).model();
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
    DriftPolicy* policy = nullptr;
    const auto generation = engine.Start(prompts[i], options.decode, [&] {
      auto made = std::make_unique<DriftPolicy>(sums, proxies, options.scope_all);
      policy = made.get();
      return made;
    });
    if (generation->num_states() > 1) throw Error("a profile is made without guidance");
    Generation* one = generation.get();
    while (!generation->done()) {
      StepTogether(engine.transformer(), {&one, 1});
      policy->ObserveOutput(generation->state().x().View());
      ++profile.num_steps;
    }
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
    profile.value_cosine.push_back(sums.value_cosine[layer] / sums.cosine_steps);
    profile.attention_cosine.push_back(sums.attention_cosine[layer] / sums.cosine_steps);
  }
  profile.fitted = options.fitted;
  profile.budget = FitBudget(profile.features[static_cast<size_t>(options.fitted)].drifted,
                             &profile.fit_error);
  return profile;
}

namespace {

// No layer gets less than this: a budget of nothing would freeze it.
constexpr double kLeastRatio = 1e-3;

double SquaredError(const Budget& budget, std::span<const double> ratios, size_t begin,
                    size_t end) {
  const std::vector<double> bell = BudgetRatios(budget, ratios.size());
  double sum = 0.0;
  for (size_t i = begin; i < end; ++i) sum += (bell[i] - ratios[i]) * (bell[i] - ratios[i]);
  return sum;
}

// The place of the least value of a function with one valley.
double GoldenSection(double low, double high, const std::function<double(double)>& f) {
  constexpr double kGolden = 0.6180339887498949;
  double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
  double fa = f(a), fb = f(b);
  for (int i = 0; i < 28; ++i) {  // narrows the interval to a millionth
    if (fa <= fb) {
      high = b;
      b = a;
      fb = fa;
      a = high - kGolden * (high - low);
      fa = f(a);
    } else {
      low = a;
      a = b;
      fa = fb;
      b = low + kGolden * (high - low);
      fb = f(b);
    }
  }
  return fa <= fb ? a : b;
}

}  // namespace

// For a given peak the two sides do not see each other: each edge is a search of its own, inside
// one over the height of the peak, for every quarter layer it may stand on.
Budget FitBudget(std::span<const double> ratios, double* error) {
  SPA_CHECK(!ratios.empty());
  const auto layers = static_cast<double>(ratios.size());
  const double highest =
      std::clamp(*std::ranges::max_element(ratios), 2.0 * kLeastRatio, 1.0);
  Budget best;
  double best_error = 1e300;
  for (double peak_layer = 1.0; peak_layer <= layers; peak_layer += 0.25) {
    const auto middle = static_cast<size_t>(peak_layer);  // layers 1 ... middle are on the left
    const auto fit_edges = [&](double peak_ratio) {
      Budget budget{peak_layer, peak_ratio, peak_ratio, peak_ratio};
      const double low = std::log(kLeastRatio), high = std::log(peak_ratio);
      budget.first_ratio = std::exp(GoldenSection(low, high, [&](double edge) {
        Budget tried = budget;
        tried.first_ratio = std::exp(edge);
        return SquaredError(tried, ratios, 0, middle);
      }));
      budget.last_ratio = std::exp(GoldenSection(low, high, [&](double edge) {
        Budget tried = budget;
        tried.last_ratio = std::exp(edge);
        return SquaredError(tried, ratios, middle, ratios.size());
      }));
      return budget;
    };
    const double peak_ratio =
        GoldenSection(kLeastRatio, std::min(1.0, 1.2 * highest), [&](double tried) {
          return SquaredError(fit_edges(tried), ratios, 0, ratios.size());
        });
    const Budget budget = fit_edges(peak_ratio);
    const double squared = SquaredError(budget, ratios, 0, ratios.size());
    if (squared < best_error) {
      best_error = squared;
      best = budget;
    }
  }
  // An edge with no layer on its side is free: the peak stands at that end.
  if (best.peak_layer <= 1.0) best.first_ratio = best.peak_ratio;
  if (best.peak_layer >= layers) best.last_ratio = best.peak_ratio;
  if (error != nullptr) *error = std::sqrt(best_error / layers);
  return best;
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
  return json.dump(1) + "\n";
}

std::vector<ComponentTimes> MeasureComponents(Engine& engine,
                                              std::span<const std::vector<TokenId>> prompts,
                                              const DecodeOptions& decode,
                                              const Progress& progress) {
  const std::pair<const char*, CacheSpec> runs[] = {
      {"none", {}},
      {"spa, value", {.name = "spa", .options = {{"identifier", "value"}, {"profile", "off"}}}},
      {"spa, singular", {.name = "spa", .options = {{"profile", "off"}}}},
  };
  std::vector<ComponentTimes> times;
  std::vector<PolicyFactory> policies;
  for (const auto& [name, spec] : runs) {
    times.push_back({name, std::vector<double>(kPhaseNames.size())});
    policies.push_back(engine.PrepareCache(spec));
  }
  std::vector<double> steps(times.size());
  PhaseClock& clock = engine.transformer().clock();
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (size_t run = 0; run < times.size(); ++run) {
      const auto generation = engine.Start(prompts[i], decode, policies[run]);
      Generation* one = generation.get();
      while (!generation->done()) {
        const bool first = generation->decoder().steps() == 0;
        clock.Reset();
        StepTogether(engine.transformer(), {&one, 1});
        clock.Enter(Phase::kOther);
        if (first) continue;
        steps[run] += 1.0;
        for (size_t p = 0; p < kPhaseNames.size(); ++p) {
          times[run].seconds[p] += clock.seconds(static_cast<Phase>(p));
        }
      }
    }
    if (progress) {
      progress("timing steps", static_cast<double>(i + 1) / static_cast<double>(prompts.size()));
    }
  }
  for (size_t run = 0; run < times.size(); ++run) {
    for (double& seconds : times[run].seconds) seconds /= std::max(1.0, steps[run]);
  }
  return times;
}

namespace {

using Json = nlohmann::ordered_json;

// A series over values[0], values[1], ... at x = 1, 2, ...
Json Curve(std::string_view name, std::span<const double> values) {
  Json points = Json::array();
  for (size_t i = 0; i < values.size(); ++i) points.push_back({{"x", i + 1}, {"y", values[i]}});
  return {{"name", name}, {"points", std::move(points)}};
}

Json DashedCurve(std::string_view name, std::span<const double> values) {
  Json curve = Curve(name, values);
  curve["dashed"] = true;
  curve["dots"] = false;
  return curve;
}

Json LayerPlot(Json y_axis, Json series) {
  return {{"kind", "xy"},
          {"x", {{"label", "layer"}, {"integer", true}}},
          {"y", std::move(y_axis)},
          {"series", std::move(series)}};
}

// A few layers stand for all: more lines could not be told apart.
Json SpectraSection(const DriftProfile& p) {
  constexpr size_t kMaxCurves = 6;
  const size_t num_curves = std::min(kMaxCurves, p.spectra.size());
  Json series = Json::array();
  for (size_t i = 0; i < num_curves; ++i) {
    const size_t layer = i * (p.spectra.size() - 1) / std::max<size_t>(1, num_curves - 1);
    std::vector<double> shares;
    for (const double value : p.spectra[layer]) shares.push_back(value / p.spectra[layer].front());
    Json curve = Curve(fmt::format("layer {}", layer + 1), shares);
    curve["dots"] = false;
    series.push_back(std::move(curve));
  }
  return {{"title", "Singular values of the value projections"},
          {"text", fmt::format("The proxy keeps the first {}. The faster a curve falls, the less "
                               "it leaves out.",
                               p.rank)},
          {"plot",
           {{"kind", "xy"},
            {"x", {{"label", "index"}, {"integer", true}}},
            {"y", {{"label", "share of the largest"}, {"zero", true}, {"max", 1.0}}},
            {"series", std::move(series)}}}};
}

Json MapSection(const SimilarityMap& map) {
  return {{"title", fmt::format("Similarity between steps, output of layer {}", map.layer + 1)},
          {"text", "The first prompt: how much of a row's output survives from one step to the "
                   "next. Dark cells drifted."},
          {"plot",
           {{"kind", "map"},
            {"x", {{"label", "position"}, {"integer", true}}},
            {"y", {{"label", "step"}, {"integer", true}}},
            {"value", {{"label", "cosine similarity"}, {"max", 1.0}}},
            {"x_first", map.first_pos},
            {"y_first", 2},
            {"values", map.similarity}}}};
}

Json TimesSection(std::span<const ComponentTimes> times) {
  Json bars = Json::array();
  for (const ComponentTimes& one : times) {
    Json& bar = bars.emplace_back(Json{{"name", one.name}, {"values", Json::array()}});
    for (const double seconds : one.seconds) bar["values"].push_back(1e3 * seconds);
  }
  return {{"title", "Time per step"},
          {"text", "Attention includes the projections of queries, keys and values; identifying by "
                   "value projects the values of every row."},
          {"plot",
           {{"kind", "bars"},
            {"x", {{"label", "milliseconds per step after the first"}}},
            {"parts", kPhaseNames},
            {"bars", std::move(bars)}}}};
}

Json NumbersSection(const DriftProfile& p, std::span<const double> bell) {
  Json columns = Json::array({"layer"});
  for (const std::string_view name : kFeatureNames) {
    columns.push_back(fmt::format("{} drift", name));
  }
  for (const char* name : {"fitted budget", "value cosine", "attention cosine"}) {
    columns.push_back(name);
  }
  Json rows = Json::array();
  for (size_t layer = 0; layer < bell.size(); ++layer) {
    Json row = Json::array({layer + 1});
    for (const FeatureDrift& feature : p.features) {
      row.push_back(fmt::format("{:.1f}%", 100.0 * feature.drifted[layer]));
    }
    row.push_back(fmt::format("{:.1f}%", 100.0 * bell[layer]));
    row.push_back(fmt::format("{:.3f}", p.value_cosine[layer]));
    row.push_back(fmt::format("{:.3f}", p.attention_cosine[layer]));
    rows.push_back(std::move(row));
  }
  return {{"title", "Numbers"},
          {"table", {{"columns", std::move(columns)}, {"rows", std::move(rows)}}}};
}

}  // namespace

std::string ProfileReport(const DriftProfile& p, std::span<const ComponentTimes> times,
                          const std::string& model) {
  const std::vector<double> bell = BudgetRatios(p.budget, p.value_cosine.size());
  const double mean = MeanRatio(bell);
  const auto fitted = static_cast<size_t>(p.fitted);
  const Json drift_axis = {{"label", fmt::format("rows with similarity below {}", p.tau)},
                           {"percent", true},
                           {"zero", true}};
  const auto cosine_axis = [](const char* label) { return Json{{"label", label}, {"max", 1.0}}; };
  Json features = Json::array(), similarity = Json::array();
  for (size_t f = 0; f < kNumFeatures; ++f) {
    features.push_back(Curve(kFeatureNames[f], p.features[f].drifted));
    similarity.push_back(Curve(kFeatureNames[f], p.features[f].similarity));
  }
  Json sections = Json::array();
  sections.push_back(
      {{"title", "Drift per layer and the fitted budget"},
       {"text", fmt::format("l_p = {:.2f}, rho_p = {:.1f}%, rho_1 = {:.1f}%, rho_L = {:.1f}%, mean "
                            "{:.1f}%; root mean square error of the fit {:.1f} points.",
                            p.budget.peak_layer, 100 * p.budget.peak_ratio,
                            100 * p.budget.first_ratio, 100 * p.budget.last_ratio, 100 * mean,
                            100 * p.fit_error)},
       {"plot",
        LayerPlot(drift_axis,
                  Json::array({Curve(kFeatureNames[fitted], p.features[fitted].drifted),
                               DashedCurve("fitted budget", bell),
                               DashedCurve("uniform, same mean",
                                           std::vector<double>(bell.size(), mean))}))}});
  sections.push_back(
      {{"title", "Drift per layer and feature"},
       {"text", fmt::format("A good identifier drifts where the layer's output does. The proxy has "
                            "rank {}.",
                            p.rank)},
       {"plot", LayerPlot(drift_axis, std::move(features))}});
  for (const SimilarityMap& map : p.maps) {
    if (!map.similarity.empty()) sections.push_back(MapSection(map));
  }
  sections.push_back({{"title", "Similarity of adjacent steps"},
                      {"text", "Mean over rows, steps and prompts."},
                      {"plot", LayerPlot(cosine_axis("mean cosine similarity"),
                                         std::move(similarity))}});
  sections.push_back(
      {{"title", "Anisotropy: how alike the rows of one step are"},
       {"text", "Rows that all point the same way hide their own changes: the reason not to "
                "identify by the attention output."},
       {"plot", LayerPlot(cosine_axis("mean pairwise cosine"),
                          Json::array({Curve("value", p.value_cosine),
                                       Curve("attention output", p.attention_cosine)}))}});
  if (!p.spectra.empty()) sections.push_back(SpectraSection(p));
  if (!times.empty()) sections.push_back(TimesSection(times));
  sections.push_back(NumbersSection(p, bell));
  const Json report = {
      {"title", "Drift profile"},
      {"text", fmt::format("{}: {} prompts, {} steps without a cache, similarity of {} between one "
                           "step and the next, tau = {}.",
                           model, p.num_prompts, p.num_steps,
                           p.scope_all ? "all rows" : "the generated rows", p.tau)},
      {"sections", std::move(sections)}};
  return ReportPage(report.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace spa
