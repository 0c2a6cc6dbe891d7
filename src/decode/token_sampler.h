// One row of logits becomes one candidate: a token and how sure the model is of it. A pure function
// of the logits, the options and (seed, step, position).
#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"
#include "base/token.h"
#include "decode/options.h"

namespace spa {

// The element of a position's random stream that Order::kRandom ranks by; no token has this number.
constexpr uint64_t kOrderDraw = UINT32_MAX;

struct Candidate {
  TokenId token = 0;
  double probability = 0.0;  // of the token
  double score = 0.0;        // what Order ranks by; larger is surer
  double entropy = 0.0;      // in nats, if the entropy bound asks for it
  double gap = 0.0;          // between the two largest logits, if Prophet asks for it
  double divergence = 0.0;   // the larger of the last two steps', if KLASS asks for it
};

// `logits` may be overwritten.
Candidate SampleToken(std::span<float> logits, const DecodeOptions& options,
                      const DecodeVocabulary& vocabulary, const RandomStream& random);

}  // namespace spa
