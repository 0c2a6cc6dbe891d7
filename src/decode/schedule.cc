#include "decode/schedule.h"

#include <algorithm>
#include <cmath>

namespace spa {

size_t EvenSplitCount(size_t masks, size_t steps, size_t step) {
  return masks / steps + (step < masks % steps ? 1 : 0);
}

std::vector<size_t> LinearCounts(size_t masks, size_t steps) {
  std::vector<size_t> counts;
  const auto open_at = [](float time) { return 1.0f - (1.0f - time); };  // 1 - alpha(t)
  for (size_t j = steps; j >= 1 && masks > 0; --j) {
    const auto s = static_cast<float>(steps);
    const float kept = open_at(static_cast<float>(j - 1) / s) / open_at(static_cast<float>(j) / s);
    const double exact = static_cast<double>(masks) * static_cast<double>(1.0f - kept);
    const auto count = std::min(masks, static_cast<size_t>(std::nearbyint(exact)));
    masks -= count;
    if (count > 0) counts.push_back(count);
  }
  return counts;
}

size_t EntropyKeptCount(size_t total, size_t steps, size_t step) {
  if (step + 1 >= steps) return 0;
  const auto left = static_cast<float>(steps - 1 - step) / static_cast<float>(steps);
  return static_cast<size_t>(static_cast<float>(total) * left);
}

std::vector<float> TimeGrid(size_t steps, double eps) {
  // As PyTorch computes it: from both ends towards the middle, so that the ends are exact.
  const float start = 1.0f, end = static_cast<float>(eps);
  const float stride = (end - start) / static_cast<float>(steps);
  std::vector<float> grid(steps + 1);
  for (size_t i = 0; i <= steps; ++i) {
    grid[i] = i < (steps + 1) / 2 ? start + stride * static_cast<float>(i)
                                  : end - stride * static_cast<float>(steps - i);
  }
  return grid;
}

size_t TimeGridCount(const std::vector<float>& grid, size_t masked, size_t step) {
  if (step + 2 >= grid.size()) return masked;
  return static_cast<size_t>(static_cast<float>(masked) * (1.0f - grid[step + 1] / grid[step]));
}

}  // namespace spa
