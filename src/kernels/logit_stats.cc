#include "kernels/logit_stats.h"

#include "kernels/reference.h"

namespace spa {

LogitStats ComputeLogitStats(std::span<const float> logits) {
  return reference::ComputeLogitStats(logits);
}

}  // namespace spa
