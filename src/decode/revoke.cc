#include "decode/revoke.h"

#include <algorithm>
#include <numeric>

#include "decode/commit_rule.h"

namespace spa {
namespace {

// The `count` smallest.
std::vector<size_t> Smallest(std::span<const double> values, size_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return values[i]; });
  order.resize(std::min(count, order.size()));
  std::ranges::sort(order);
  return order;
}

// Everything more probable than `threshold`, or the `at_least` most probable.
std::vector<size_t> Above(std::span<const Candidate> candidates, double threshold,
                          size_t at_least) {
  std::vector<size_t> chosen;
  std::vector<double> doubts;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].probability > threshold) chosen.push_back(i);
    doubts.push_back(-candidates[i].probability);
  }
  return chosen.size() >= at_least ? chosen : Smallest(doubts, at_least);
}

}  // namespace

std::vector<size_t> WinoSettles(std::span<const Candidate> candidates, double threshold) {
  const auto most =
      std::clamp<size_t>(static_cast<size_t>(0.7 * static_cast<double>(candidates.size())), 5, 20);
  std::vector<size_t> chosen = Above(candidates, threshold, 1);
  if (chosen.size() <= most) return chosen;
  std::vector<double> doubts;
  for (const Candidate& candidate : candidates) doubts.push_back(-candidate.probability);
  return Smallest(doubts, most);
}

std::vector<size_t> WinoOpens(std::span<const double> unseen, double least, size_t last) {
  std::vector<size_t> opens;
  for (size_t i = 0; i < unseen.size(); ++i) {
    if (unseen[i] < least) opens.push_back(i);
  }
  if (opens.size() < last) return opens;
  return Smallest(unseen, last - 1);
}

std::vector<size_t> SaberSettles(std::span<const Candidate> candidates, double mean, size_t count) {
  return Above(candidates, mean, count);
}

std::vector<size_t> SaberOpens(std::span<const double> gain, size_t count, size_t settled_now) {
  if (settled_now == 0) return {};
  return Smallest(gain, std::min(std::max(count / 2, (settled_now + 7) / 8), settled_now - 1));
}

}  // namespace spa
