// Paired statistics of two methods on the same questions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lab/samples.h"

namespace spa {

// Questions that only one of two methods got right.
struct Pairs {
  size_t lost = 0;  // right with the first method only
  size_t won = 0;   // right with the second method only

  // Exact two-sided McNemar test: how likely a split at least this uneven is if neither is better.
  double p_value() const;
};

// Accuracy under parallelism (arXiv 2601.07568): the area under a curve of accuracy, in percent,
// against tokens per step, where accuracy far below `best`, the best of any method, counts less.
// Points more than 5 percent below the slowest one are left out.
struct ParallelPoint {
  double tokens_per_step = 0.0;
  double accuracy = 0.0;  // in percent
};
double AccuracyUnderParallelism(std::vector<ParallelPoint> points, double best);

Pairs CountPairs(std::span<const Sample> first, std::span<const Sample> second);

}  // namespace spa
