// The figures of a drift profile as one HTML page.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lab/profile.h"
#include "lab/report.h"
#include "policies/spa_budget.h"

namespace spa {
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

// A few layers only: more lines could not be told apart.
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
  return {
      {"title", "Singular values of the value projections"},
      {"text", fmt::format("The proxy keeps the first {}. The faster a curve falls, the less it "
                           "leaves out.",
                           p.rank)},
      {"plot",
       {{"kind", "xy"},
        {"x", {{"label", "index"}, {"integer", true}}},
        {"y", {{"label", "share of the largest"}, {"zero", true}, {"max", 1.0}}},
        {"series", std::move(series)}}}};
}

Json LemmaSection(const DriftProfile& p) {
  return {
      {"title", "How far the proxy's similarity is from the value's"},
      {"text",
       fmt::format("Mean over rows, and the mean of the paper's bound (its lemma, with a factor "
                   "for each row; at most 2 is drawn). The largest error is {:.0f}% of its bound.",
                   100.0 * std::ranges::max(p.theory.ratio))},
      {"plot", LayerPlot({{"label", "difference of cosines"}, {"zero", true}},
                         Json::array({Curve("proxy of rank " + std::to_string(p.rank),
                                            p.theory.proxy_error),
                                      DashedCurve("bound", p.theory.bound)}))}};
}

Json UnseenSection(const DriftProfile& p) {
  return {
      {"title", "Rows that moved, unseen by their value"},
      {"text",
       fmt::format("Of the rows whose attention output moved by more than {} (1 - cosine), the "
                   "share whose value moved less than {}. What they read had changed, not they: "
                   "the residual of the paper's Theorem 1, and no identifier of a row's own "
                   "input can see it.",
                   TheoryCheck::kMoved, TheoryCheck::kStill)},
      {"plot", LayerPlot({{"label", "share of the rows that moved"},
                          {"percent", true},
                          {"zero", true},
                          {"max", 1.0}},
                         Json::array({Curve("unseen", p.theory.unseen)}))}};
}

Json MapSection(const SimilarityMap& map) {
  return {{"title", fmt::format("Similarity between steps, output of layer {}", map.layer + 1)},
          {"text",
           "The first prompt: how much of a row's output survives from one step to the next. "
           "Dark cells drifted."},
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
          {"text",
           "Attention includes the projections of queries, keys and values; identifying by "
           "value projects the values of every row."},
          {"plot",
           {{"kind", "bars"},
            {"x", {{"label", "milliseconds per step after the first"}}},
            {"parts", kPhaseNames},
            {"bars", std::move(bars)}}}};
}

Json NumbersSection(const DriftProfile& p, std::span<const double> bell) {
  Json columns = Json::array({"layer"});
  for (const std::string_view name : kFeatureNames)
    columns.push_back(fmt::format("{} drift", name));
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
  for (size_t f = 0; f < kFeatureNames.size(); ++f) {
    features.push_back(Curve(kFeatureNames[f], p.features[f].drifted));
    similarity.push_back(Curve(kFeatureNames[f], p.features[f].similarity));
  }
  Json sections = Json::array();
  sections.push_back(
      {{"title", "Drift per layer and the fitted budget"},
       {"text",
        fmt::format("l_p = {:.2f}, rho_p = {:.1f}%, rho_1 = {:.1f}%, rho_L = {:.1f}%, mean "
                    "{:.1f}%; root mean square error of the fit {:.1f} points.",
                    p.budget.peak_layer, 100 * p.budget.peak_ratio, 100 * p.budget.first_ratio,
                    100 * p.budget.last_ratio, 100 * mean, 100 * p.fit_error)},
       {"plot", LayerPlot(drift_axis,
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
  sections.push_back(
      {{"title", "Similarity of adjacent steps"},
       {"text", "Mean over rows, steps and prompts."},
       {"plot", LayerPlot(cosine_axis("mean cosine similarity"), std::move(similarity))}});
  sections.push_back(
      {{"title", "Anisotropy: how alike the rows of one step are"},
       {"text",
        "Rows that all point the same way hide their own changes. The paper therefore does not "
        "identify by the attention output; SPA-Cache's default does, with a small least drift."},
       {"plot", LayerPlot(cosine_axis("mean pairwise cosine"),
                          Json::array({Curve("value", p.value_cosine),
                                       Curve("attention output", p.attention_cosine)}))}});
  if (!p.spectra.empty()) sections.push_back(SpectraSection(p));
  sections.push_back(LemmaSection(p));
  sections.push_back(UnseenSection(p));
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
