// One request on its way through the engine: its decoder and the transformer state of its sequence
// (two of them with classifier-free guidance). StepTogether advances any number of generations by
// one forward pass; none of them can see the others.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/matrix.h"
#include "decode/decoder.h"
#include "transformer/transformer.h"

namespace spa {

class Generation {
 public:
  Generation(const ModelConfig& config, std::vector<TokenId> prompt, const DecodeOptions& options,
             const DecodeVocabulary& vocabulary, KvType kv_type, const PolicyFactory& policy);

  bool done() const { return decoder_.done(); }
  const Decoder& decoder() const { return decoder_; }
  // The sequence's state; [1] is the unconditional one of guidance.
  SequenceState& state(size_t index = 0) { return *states_[index]; }
  size_t num_states() const { return states_.size(); }
  size_t cache_bytes() const;
  uint64_t rows_computed() const;
  uint64_t rows_total() const;

 private:
  friend void StepTogether(Transformer& transformer, std::span<Generation* const> generations);
  void AppendSteps(std::vector<SequenceStep>& batch);
  void Offer(size_t state, size_t index, std::span<float> logits);
  void Finish(ThreadPool& pool);

  Decoder decoder_;
  std::vector<std::unique_ptr<SequenceState>> states_;
  std::vector<TokenId> unconditional_ids_;  // the prompt masked, for guidance
  Mat<float> guided_[2];                    // [wanted, vocab], kept until both passes are known
};

// One forward pass for each; all must be unfinished.
void StepTogether(Transformer& transformer, std::span<Generation* const> generations);

}  // namespace spa
