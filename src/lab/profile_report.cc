// The figures of a drift profile as one HTML page.
#include <fmt/format.h>

#include "lab/profile.h"
#include "lab/report.h"
#include "policies/spa_budget.h"

namespace spa {
namespace {

PlotSeries LayerCurve(const std::string& name, std::span<const double> values, bool dashed = false) {
  PlotSeries series{.name = name, .points = {}, .line = true, .dashed = dashed, .dots = !dashed};
  for (size_t i = 0; i < values.size(); ++i) {
    series.points.push_back({.x = static_cast<double>(i + 1), .y = values[i]});
  }
  return series;
}

}  // namespace

std::string ProfileReport(const DriftProfile& p, std::span<const ComponentTimes> times,
                          const std::string& model) {
  const std::string rows = p.scope_all ? "all rows" : "the generated rows";
  HtmlPage page("Drift profile",
                fmt::format("{}: {} prompts, {} steps without a cache, similarity of {} between one "
                            "step and the next, tau = {}.",
                            model, p.num_prompts, p.num_steps, rows, p.tau));
  const std::string fitted_name(kFeatureNames[static_cast<size_t>(p.fitted)]);
  const std::vector<double> bell = BudgetRatios(p.budget, p.value_cosine.size());
  const double mean = MeanRatio(bell);

  Plot drift{.title = "Drift per layer and the fitted budget", .x_label = "layer",
             .y_label = fmt::format("rows with similarity below {}", p.tau), .series = {},
             .x_from_zero = false, .y_percent = true, .y_min = 0.0, .y_max = {}};
  drift.series.push_back(
      LayerCurve(fitted_name, p.features[static_cast<size_t>(p.fitted)].drifted));
  drift.series.push_back(LayerCurve("fitted budget", bell, true));
  drift.series.push_back(
      LayerCurve("uniform, same mean", std::vector<double>(bell.size(), mean), true));
  page.Figure(DrawPlot(drift),
              fmt::format("l_p = {:.2f}, rho_p = {:.1f}%, rho_1 = {:.1f}%, rho_L = {:.1f}%, mean "
                          "{:.1f}%; root mean square error of the fit {:.1f} points.",
                          p.budget.peak_layer, 100 * p.budget.peak_ratio,
                          100 * p.budget.first_ratio, 100 * p.budget.last_ratio, 100 * mean,
                          100 * p.fit_error));

  Plot features{.title = "Drift per layer and feature", .x_label = "layer",
                .y_label = fmt::format("rows with similarity below {}", p.tau), .series = {},
                .x_from_zero = false, .y_percent = true, .y_min = 0.0, .y_max = {}};
  Plot similarity{.title = "Similarity of adjacent steps", .x_label = "layer",
                  .y_label = "mean cosine similarity", .series = {}, .x_from_zero = false,
                  .y_percent = false, .y_min = {}, .y_max = {}};
  for (size_t f = 0; f < kFeatureNames.size(); ++f) {
    const std::string name(kFeatureNames[f]);
    features.series.push_back(LayerCurve(name, p.features[f].drifted));
    similarity.series.push_back(LayerCurve(name, p.features[f].similarity));
  }
  page.Figure(DrawPlot(features),
              fmt::format("A good identifier drifts where the layer's output does. The proxy has rank "
                          "{}.",
                          p.rank));
  page.Figure(DrawPlot(similarity), "Mean over rows, steps and prompts.");

  Plot cosine{.title = "Anisotropy: how alike the rows of one step are", .x_label = "layer",
              .y_label = "mean pairwise cosine", .series = {}, .x_from_zero = false,
              .y_percent = false, .y_min = {}, .y_max = {}};
  cosine.series.push_back(LayerCurve("value", p.value_cosine));
  cosine.series.push_back(LayerCurve("attention output", p.attention_cosine));
  page.Figure(DrawPlot(cosine),
              "Rows that all point the same way hide their own changes: the reason not to identify "
              "by the attention output.");

  if (!times.empty()) {
    BarChart chart{.title = "Time per step", .x_label = "milliseconds per step after the first",
                   .parts = {}, .bars = {}};
    for (const std::string_view name : kPhaseNames) chart.parts.emplace_back(name);
    for (const ComponentTimes& one : times) {
      BarChart::Bar bar{one.name, {}};
      for (const double seconds : one.seconds) bar.values.push_back(1e3 * seconds);
      chart.bars.push_back(std::move(bar));
    }
    page.Figure(DrawBars(chart),
                "Attention includes the projections of queries, keys and values; identifying by "
                "value projects the values of every row.");
  }

  page.Heading("Numbers");
  std::vector<std::vector<std::string>> table = {{"layer"}};
  for (const std::string_view name : kFeatureNames) table[0].push_back(fmt::format("{} drift", name));
  table[0].insert(table[0].end(), {"fitted budget", "value cosine", "attention cosine"});
  for (size_t layer = 0; layer < bell.size(); ++layer) {
    std::vector<std::string>& row = table.emplace_back();
    row.push_back(fmt::format("{}", layer + 1));
    for (const FeatureDrift& feature : p.features) {
      row.push_back(fmt::format("{:.1f}%", 100.0 * feature.drifted[layer]));
    }
    row.push_back(fmt::format("{:.1f}%", 100.0 * bell[layer]));
    row.push_back(fmt::format("{:.3f}", p.value_cosine[layer]));
    row.push_back(fmt::format("{:.3f}", p.attention_cosine[layer]));
  }
  page.Table(table);
  return page.Text();
}

}  // namespace spa
