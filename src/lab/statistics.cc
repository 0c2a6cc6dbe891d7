#include "lab/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace spa {

double Pairs::p_value() const {
  const size_t n = lost + won, fewer = std::min(lost, won);
  if (n == 0) return 1.0;
  // Twice the lower tail of Binomial(n, 1/2); terms by logarithms, since 2^n overflows.
  const auto total = static_cast<double>(n);
  double tail = 0.0;
  for (size_t k = 0; k <= fewer; ++k) {
    const auto x = static_cast<double>(k);
    tail += std::exp(std::lgamma(total + 1) - std::lgamma(x + 1) - std::lgamma(total - x + 1) -
                     total * std::log(2.0));
  }
  return std::min(1.0, 2.0 * tail);
}

Pairs CountPairs(std::span<const Sample> first, std::span<const Sample> second) {
  SPA_CHECK(first.size() == second.size());
  Pairs pairs;
  for (size_t i = 0; i < first.size(); ++i) {
    pairs.lost += first[i].correct && !second[i].correct ? 1 : 0;
    pairs.won += second[i].correct && !first[i].correct ? 1 : 0;
  }
  return pairs;
}

double AccuracyUnderParallelism(std::vector<ParallelPoint> points, double best) {
  if (points.empty()) return 0.0;
  std::ranges::stable_sort(points, {}, &ParallelPoint::tokens_per_step);
  const double least = points.front().accuracy - 5.0;
  std::erase_if(points, [&](const ParallelPoint& point) { return point.accuracy < least; });
  const auto weighted = [&](const ParallelPoint& point) {
    return point.accuracy * std::min(std::exp(-3.0 * (1.0 - point.accuracy / best)), 1.0);
  };
  double area = points[0].tokens_per_step * points[0].accuracy;
  for (size_t i = 1; i < points.size(); ++i) {
    area += (points[i].tokens_per_step - points[i - 1].tokens_per_step) *
            (weighted(points[i]) + weighted(points[i - 1])) / 2.0;
  }
  return area;
}

}  // namespace spa
