#include "lab/fit_budget.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"

namespace spa {
namespace {

// No layer gets less than this: an empty budget would freeze it.
constexpr double kLeastRatio = 1e-3;

double SquaredError(const Budget& budget, std::span<const double> ratios, size_t begin,
                    size_t end) {
  const std::vector<double> bell = BudgetRatios(budget, ratios.size());
  double sum = 0.0;
  for (size_t i = begin; i < end; ++i) sum += (bell[i] - ratios[i]) * (bell[i] - ratios[i]);
  return sum;
}

// The minimum of a unimodal function.
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

// For a given peak the two sides are independent: each edge is searched by itself, inside a search
// over the height of the peak, for every quarter layer the peak may be at.
Budget FitBudget(std::span<const double> ratios, double* error) {
  SPA_CHECK(!ratios.empty());
  const auto layers = static_cast<double>(ratios.size());
  const double highest = std::clamp(*std::ranges::max_element(ratios), 2.0 * kLeastRatio, 1.0);
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
    const double peak_ratio = GoldenSection(
        kLeastRatio, std::min(1.0, 1.2 * highest),
        [&](double tried) { return SquaredError(fit_edges(tried), ratios, 0, ratios.size()); });
    const Budget budget = fit_edges(peak_ratio);
    const double squared = SquaredError(budget, ratios, 0, ratios.size());
    if (squared < best_error) {
      best_error = squared;
      best = budget;
    }
  }
  // An edge with no layer on its side is unconstrained: the peak is at that end.
  if (best.peak_layer <= 1.0) best.first_ratio = best.peak_ratio;
  if (best.peak_layer >= layers) best.last_ratio = best.peak_ratio;
  if (error != nullptr) *error = std::sqrt(best_error / layers);
  return best;
}

}  // namespace spa
