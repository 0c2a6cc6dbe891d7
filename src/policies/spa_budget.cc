#include "policies/spa_budget.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace spa {

std::vector<double> BudgetRatios(const Budget& b, size_t num_layers) {
  std::vector<double> ratios(num_layers);
  const auto last = static_cast<double>(num_layers);
  for (size_t i = 0; i < num_layers; ++i) {
    const double l = static_cast<double>(i + 1);
    const bool left = l <= b.peak_layer;
    const double edge = left ? b.first_ratio : b.last_ratio;
    const double width = left ? b.peak_layer - 1.0 : last - b.peak_layer;
    const double z = width > 0.0 ? (l - b.peak_layer) / width : 0.0;
    ratios[i] = b.peak_ratio * std::exp(std::log(edge / b.peak_ratio) * z * z);
  }
  return ratios;
}

std::vector<double> ReferenceBudgetRatios(const Budget& published, double peak_ratio,
                                          double floor_ratio, size_t num_layers) {
  const auto layers = static_cast<double>(num_layers);
  const double mean = published.peak_layer / layers;
  const double scale = peak_ratio / published.peak_ratio;
  std::vector<double> ratios(num_layers);
  for (size_t i = 0; i < num_layers; ++i) {
    const double x = static_cast<double>(i) / layers;
    const bool left = x <= mean;
    const double edge = left ? published.first_ratio : published.last_ratio;
    const double z = left ? (x - mean) / mean : (x - mean) / (1.0 - mean);
    const double bell =
        scale * published.peak_ratio * std::exp(std::log(edge / published.peak_ratio) * z * z);
    ratios[i] = left ? std::max(bell, floor_ratio) : bell;
  }
  return ratios;
}

Budget PublishedBudget(const ModelConfig& config) {
  if (config.spa_budget) {
    const auto [peak_layer, peak, first, last] = *config.spa_budget;
    return {.peak_layer = peak_layer, .peak_ratio = peak, .first_ratio = first, .last_ratio = last};
  }
  const CacheDefaults& published = config.cache;
  const auto layers = static_cast<double>(config.num_layers);
  return {.peak_layer = std::round(published.spa_peak_depth * layers),
          .peak_ratio = published.spa_peak_ratio,
          .first_ratio = published.spa_first_ratio,
          .last_ratio = published.spa_last_ratio};
}

double MeanRatio(const std::vector<double>& ratios) {
  return std::accumulate(ratios.begin(), ratios.end(), 0.0) / static_cast<double>(ratios.size());
}

size_t BudgetRows(double ratio, size_t scope) {
  const auto rows = static_cast<size_t>(ratio * static_cast<double>(scope));
  return std::clamp<size_t>(rows, 1, scope);
}

}  // namespace spa
