// Paired statistics: two ways answered the same questions.
#pragma once

#include <cstddef>
#include <span>

#include "lab/samples.h"

namespace spa {

// Questions that only one of two ways answered rightly.
struct Pairs {
  size_t lost = 0;  // right with the first way only
  size_t won = 0;   // right with the second way only

  // Exact two-sided McNemar test: how likely a split at least this uneven is if neither is better.
  double p_value() const;
};

Pairs CountPairs(std::span<const Sample> first, std::span<const Sample> second);

}  // namespace spa
