#include "decode/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/logit_stats.h"

namespace spa {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// The references let the model choose the mask itself or a padding row; an answer must not hold
// either, so such tokens keep their probability but are never chosen.
bool Allowed(size_t id, const DecodeVocabulary& vocabulary) {
  return id < vocabulary.num_tokens && static_cast<TokenId>(id) != vocabulary.mask_id;
}

// First index of the largest value among allowed tokens.
template <typename Value>
size_t ArgMaxAllowed(size_t size, const DecodeVocabulary& vocabulary, const Value& value) {
  size_t best = 0;
  double best_value = kMinusInfinity;
  for (size_t id = 0; id < size; ++id) {
    if (!Allowed(id, vocabulary)) continue;
    const double v = value(id);
    if (v > best_value) {
      best_value = v;
      best = id;
    }
  }
  return best;
}

// Drops (sets to minus infinity) what top_p and top_k leave out; logits are already divided by the
// temperature.
void Filter(std::span<float> logits, double log_sum, double top_p, size_t top_k) {
  constexpr float kDropped = -std::numeric_limits<float>::infinity();
  const size_t n = logits.size();
  if (top_p < 1.0) {
    // Descending; the most likely few nearly always carry the whole mass, so sort those first.
    std::vector<uint32_t> order(n);
    for (size_t i = 0; i < n; ++i) order[i] = static_cast<uint32_t>(i);
    const auto greater = [&](uint32_t a, uint32_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    };
    size_t sorted = 0;
    double mass = 0.0;  // of the tokens before `place`
    size_t place = 0;
    for (; place < n; ++place) {
      if (place == sorted) {
        const size_t next = std::min(n, std::max<size_t>(256, sorted * 8));
        std::partial_sort(order.begin() + static_cast<ptrdiff_t>(sorted),
                          order.begin() + static_cast<ptrdiff_t>(next), order.end(), greater);
        sorted = next;
      }
      if (place > 0 && mass > top_p) break;
      mass += std::exp(logits[order[place]] - log_sum);
    }
    for (size_t i = place; i < n; ++i) logits[order[i]] = kDropped;
  }
  if (top_k > 0 && top_k < n) {
    std::vector<float> values(logits.begin(), logits.end());
    std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(top_k - 1),
                     values.end(), std::greater<>());
    const float least = values[top_k - 1];  // ties with it stay
    for (float& logit : logits) {
      if (logit < least) logit = kDropped;
    }
  }
}

double NegativeEntropy(std::span<const float> logits, double log_sum_exp) {
  double sum = 0.0;
  for (const float logit : logits) {
    const double p = std::exp(logit - log_sum_exp);
    sum += p * std::log(p + 1e-10);
  }
  return sum;
}

// The two largest logits.
std::pair<float, float> TopTwo(std::span<const float> logits) {
  float first = -std::numeric_limits<float>::infinity(), second = first;
  for (const float logit : logits) {
    if (logit > first) {
      second = first;
      first = logit;
    } else if (logit > second) {
      second = logit;
    }
  }
  return {first, second};
}

double Margin(std::span<const float> logits, double log_sum_exp) {
  const auto [first, second] = TopTwo(logits);
  return std::exp(first - log_sum_exp) - std::exp(second - log_sum_exp);
}

size_t GreedyToken(std::span<const float> logits, const LogitStats& stats,
                   const DecodeVocabulary& vocabulary) {
  if (Allowed(stats.argmax, vocabulary)) return stats.argmax;
  return ArgMaxAllowed(logits.size(), vocabulary, [&](size_t id) { return logits[id]; });
}

// exp(logit) / (-ln U)^T of the reference, in the logarithmic form that cannot overflow.
size_t GumbelToken(std::span<const float> logits, double temperature,
                   const DecodeVocabulary& vocabulary, const RandomStream& random) {
  return ArgMaxAllowed(logits.size(), vocabulary, [&](size_t id) {
    return static_cast<double>(logits[id]) - temperature * std::log(-std::log(random.Uniform(id)));
  });
}

size_t DrawToken(std::span<const float> logits, double log_sum_exp,
                 const DecodeVocabulary& vocabulary, const RandomStream& random) {
  const double target = random.Uniform(0);
  double allowed_mass = 0.0;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (Allowed(id, vocabulary)) allowed_mass += std::exp(logits[id] - log_sum_exp);
  }
  double mass = 0.0;
  size_t last = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!Allowed(id, vocabulary)) continue;
    const double p = std::exp(logits[id] - log_sum_exp);
    if (p == 0.0) continue;
    last = id;
    mass += p;
    if (mass >= target * allowed_mass) return id;
  }
  return last;
}

}  // namespace

Candidate SampleToken(std::span<float> logits, const DecodeOptions& options,
                      const DecodeVocabulary& vocabulary, const RandomStream& random) {
  if (options.eos_rule == EosRule::kLogits && !vocabulary.stop_ids.empty()) {
    logits[static_cast<size_t>(vocabulary.stop_ids.front())] =
        -std::numeric_limits<float>::infinity();
  }
  if (options.draw == Draw::kFiltered) {
    if (options.temperature > 0.0) {
      for (float& logit : logits) logit = static_cast<float>(logit / options.temperature);
    }
    if (options.top_p < 1.0 || options.top_k > 0) {
      const LogitStats stats = ComputeLogitStats(logits);
      const size_t best = GreedyToken(logits, stats, vocabulary);
      const float best_logit = logits[best];
      Filter(logits, stats.log_sum_exp, options.top_p, options.top_k);
      logits[best] = best_logit;  // else only the mask might be left
    }
  }
  const LogitStats stats = ComputeLogitStats(logits);
  size_t token;
  if (options.temperature == 0.0) {
    token = GreedyToken(logits, stats, vocabulary);
  } else if (options.draw == Draw::kGumbel) {
    token = GumbelToken(logits, options.temperature, vocabulary, random);
  } else {
    token = DrawToken(logits, stats.log_sum_exp, vocabulary, random);
  }
  Candidate candidate;
  candidate.token = static_cast<TokenId>(token);
  candidate.probability = std::exp(logits[token] - stats.log_sum_exp);
  if (options.entropy_bound) candidate.entropy = -NegativeEntropy(logits, stats.log_sum_exp);
  if (options.prophet) {
    const auto [first, second] = TopTwo(logits);
    candidate.gap = static_cast<double>(first) - second;
  }
  // The model's confidence in the mask says nothing about the token chosen instead.
  const bool sure = Allowed(stats.argmax, vocabulary);
  switch (options.order) {
    case Order::kProbability:
      candidate.score = candidate.probability;
      break;
    case Order::kMargin:
      candidate.score = sure ? Margin(logits, stats.log_sum_exp) : 0.0;
      break;
    case Order::kEntropy:
      candidate.score = sure ? NegativeEntropy(logits, stats.log_sum_exp)
                             : std::log(candidate.probability + 1e-10);
      break;
    case Order::kRandom:
      candidate.score = random.Uniform(kOrderDraw);
      break;
    case Order::kLeftmost:
      candidate.score = 0.0;  // all tie; the lower position wins
      break;
  }
  if (options.eos_rule == EosRule::kConfidence &&
      std::ranges::find(vocabulary.stop_ids, candidate.token) != vocabulary.stop_ids.end()) {
    candidate.score = kMinusInfinity;
    candidate.probability = 0.0;
  }
  return candidate;
}

}  // namespace spa
