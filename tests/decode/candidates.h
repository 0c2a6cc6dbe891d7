// Candidates for tests of the rules that settle them.
#pragma once

#include <vector>

#include "decode/token_sampler.h"

namespace spa {

using Indices = std::vector<size_t>;

inline std::vector<Candidate> WithProbabilities(const std::vector<double>& probabilities) {
  std::vector<Candidate> candidates;
  for (const double p : probabilities) candidates.push_back({.probability = p, .score = p});
  return candidates;
}

}  // namespace spa
