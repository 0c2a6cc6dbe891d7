#include "decode/schedule.h"

namespace spa {

size_t EvenSplitCount(size_t masks, size_t steps, size_t step) {
  return masks / steps + (step < masks % steps ? 1 : 0);
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
