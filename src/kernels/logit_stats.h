// Statistics of one row of logits that greedy decoding needs, in one or two sweeps.
#pragma once

#include <cstdint>
#include <span>

namespace spa {

struct LogitStats {
  uint32_t argmax = 0;       // first index of the largest logit
  float max = 0.0f;          // its logit
  double log_sum_exp = 0.0;  // ln(sum exp(logit)), summed in float64
};

LogitStats ComputeLogitStats(std::span<const float> logits);

}  // namespace spa
