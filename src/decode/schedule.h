// How many positions each step settles.
#pragma once

#include <cstddef>
#include <vector>

#include "decode/options.h"

namespace spa {

// For `masks` masks and `steps` steps: masks/steps each, the remainder one by one to the first.
size_t EvenSplitCount(size_t masks, size_t steps, size_t step);

// The A2D samplers' counts for `masks` masks and at most `steps` steps; steps that settle nothing
// are left out.
std::vector<size_t> LinearCounts(size_t masks, size_t steps);

// RND1: how many of `total` stay open after step `step` of `steps`, in float32.
size_t EntropyKeptCount(size_t total, size_t steps, size_t step);

// Dream's linspace(1, eps, steps + 1) in float32; element i is the time before step i.
std::vector<float> TimeGrid(size_t steps, double eps);
// trunc(masked * (1 - t[step + 1] / t[step])) in float32; everything that is left at the last step.
size_t TimeGridCount(const std::vector<float>& grid, size_t masked, size_t step);

}  // namespace spa
