#include "decode/position_memory.h"

#include <algorithm>
#include <cmath>

#include "kernels/logit_stats.h"

namespace spa {

void AddCredit(const DecodeOptions& options, std::span<float> logits, PositionMemory& memory) {
  const LogitStats stats = ComputeLogitStats(logits);
  const auto best = static_cast<TokenId>(stats.argmax);
  for (auto& [token, credit] : memory.credits) credit *= options.credit_decay;
  auto found = std::ranges::find(memory.credits, best, &std::pair<TokenId, double>::first);
  if (found == memory.credits.end()) found = memory.credits.insert(found, {best, 0.0});
  found->second += std::pow(std::exp(stats.max - stats.log_sum_exp), options.credit_power);
  for (const auto& [token, credit] : memory.credits) {
    logits[static_cast<size_t>(token)] += static_cast<float>(options.credit * std::log1p(credit));
  }
}

double Divergence(std::span<const float> logits, PositionMemory& memory) {
  constexpr double kLeast = 1e-12;
  const double log_sum_exp = ComputeLogitStats(logits).log_sum_exp;
  std::vector<float>& last = memory.distribution;
  const bool first = last.empty();
  if (first) last.assign(logits.size(), 0.0f);
  double divergence = 0.0;
  for (size_t id = 0; id < logits.size(); ++id) {
    const double p = std::exp(logits[id] - log_sum_exp);
    divergence += p * (std::log(p + kLeast) - std::log(last[id] + kLeast));
    last[id] = static_cast<float>(p);
  }
  const double larger = first ? divergence : std::max(divergence, memory.last_divergence);
  memory.last_divergence = divergence;
  return larger;
}

}  // namespace spa
