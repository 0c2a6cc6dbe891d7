// What some commit rules remember of an open position from step to step.
#pragma once

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "base/token.h"
#include "decode/options.h"

namespace spa {

struct PositionMemory {
  std::vector<std::pair<TokenId, double>> credits;  // of the tokens that have been the best
  std::vector<float> distribution;                  // of the last step   [vocab_rows]
  double last_divergence = 0.0;
  double settled_with = 0.0;     // confidence when it was settled; 0: open
  double last_confidence = 0.0;  // of the last step it was read in
};

// CreditDecoding (arXiv 2510.06133): earlier credits decay, this step's best token earns
// probability^power, and every credited logit rises by credit ln(1 + its credit).
void AddCredit(const DecodeOptions& options, std::span<float> logits, PositionMemory& memory);

// KLASS (arXiv 2511.05664): the larger of this step's and the last step's divergence, each from the
// step before it. A position's first divergence is from an empty distribution: about 27.6 minus the
// entropy.
double Divergence(std::span<const float> logits, PositionMemory& memory);

}  // namespace spa
