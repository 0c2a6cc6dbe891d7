#include "decode/commit_rule.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace spa {
namespace {

// Indices by descending key, lower index first on ties.
template <typename Key>
std::vector<size_t> Ranked(size_t size, const Key& key) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return key(a) > key(b); });
  return order;
}

std::vector<size_t> FirstAscending(std::vector<size_t> order, size_t count) {
  order.resize(std::min(count, order.size()));
  std::ranges::sort(order);
  return order;
}

}  // namespace

std::vector<size_t> CommitBest(std::span<const Candidate> candidates, size_t count) {
  return FirstAscending(Ranked(candidates.size(), [&](size_t i) { return candidates[i].score; }),
                        count);
}

std::vector<size_t> CommitDrawn(std::span<const Candidate> candidates, size_t count,
                                double temperature, const RandomStream& random) {
  // Perturbed scores in descending order are a draw without replacement (Gumbel top-k).
  return FirstAscending(Ranked(candidates.size(),
                               [&](size_t i) {
                                 return candidates[i].score / temperature -
                                        std::log(-std::log(random.Uniform(i)));
                               }),
                        count);
}

std::vector<size_t> CommitEach(std::span<const Candidate> candidates, double probability,
                               const RandomStream& random) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (random.Uniform(i) < probability) chosen.push_back(i);
  }
  return chosen;
}

std::vector<size_t> CommitThreshold(std::span<const Candidate> candidates, double threshold,
                                    size_t at_least) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (threshold < 1.0 && candidates[i].probability >= threshold) chosen.push_back(i);
  }
  if (chosen.size() >= at_least) return chosen;
  return FirstAscending(
      Ranked(candidates.size(), [&](size_t i) { return candidates[i].probability; }), at_least);
}

std::vector<size_t> CommitEntropyBound(std::span<const Candidate> candidates, double bound) {
  const std::vector<size_t> order =
      Ranked(candidates.size(), [&](size_t i) { return candidates[i].probability; });
  double sum = 0.0, largest = 0.0;
  size_t count = 0;
  for (; count < order.size(); ++count) {
    const double entropy = candidates[order[count]].entropy;
    sum += entropy;
    largest = std::max(largest, entropy);
    if (count > 0 && sum - largest > bound) break;
  }
  return FirstAscending(order, count);
}

std::vector<size_t> CommitLeastEntropy(std::span<const Candidate> candidates, double bound) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return candidates[i].entropy; });
  double before = 0.0;
  size_t count = 0;
  while (count < order.size() && before <= bound) before += candidates[order[count++]].entropy;
  order.resize(count);
  std::ranges::sort(order);
  return order;
}

std::vector<size_t> CommitFactor(std::span<const Candidate> candidates, double factor) {
  const std::vector<size_t> order =
      Ranked(candidates.size(), [&](size_t i) { return candidates[i].probability; });
  size_t count = std::min<size_t>(1, order.size());
  while (count < order.size() &&
         static_cast<double>(count + 2) * (1.0 - candidates[order[count]].probability) < factor) {
    ++count;
  }
  return FirstAscending(order, count);
}

}  // namespace spa
