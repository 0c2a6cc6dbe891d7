// One request in progress: its decoder and the transformer state of its sequence (two states with
// classifier-free guidance). StepTogether advances any number of generations by one forward pass;
// none of them can see the others.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/matrix.h"
#include "decode/decoder.h"
#include "transformer/transformer.h"

namespace spa {

// What a generation did and how long it took.
struct GenerationStats {
  std::string cache;  // PreparedCache::description
  size_t prompt_tokens = 0;
  size_t reused_tokens = 0;  // of the prompt: adopted from another request
  size_t canvas_tokens = 0;
  size_t generated_tokens = 0;  // of the answer, without its end token
  bool ended = false;           // by an end token, not by the canvas
  size_t steps = 0;
  size_t settled_tokens = 0;  // positions of the canvas with a token, also after the end token
  uint64_t rows_computed = 0, rows_total = 0;
  double later_rows = 0.0;  // rows through all layers, computed after the first step
  size_t cache_bytes = 0;
  uint64_t seed = 0;
  double queue_seconds = 0.0;       // before it began
  double seconds = 0.0;             // from its beginning to its end
  double first_step_seconds = 0.0;  // from its beginning
  double first_text_seconds = 0.0;  // from its submission; 0: never
  double engine_seconds = 0.0;      // its share of the steps it was in

  double tokens_per_second() const {
    return seconds > 0.0 ? static_cast<double>(generated_tokens) / seconds : 0.0;
  }
  double rows_fraction() const {
    return rows_total > 0 ? static_cast<double>(rows_computed) / static_cast<double>(rows_total)
                          : 0.0;
  }
};

class Generation {
 public:
  Generation(const ModelConfig& config, std::vector<TokenId> prompt, const DecodeOptions& options,
             const DecodeVocabulary& vocabulary, KvType kv_type, const PolicyFactory& policy,
             std::vector<TokenId> suffix = {}, GivenCanvas canvas = {});

  // Counts up to now, and the times the runner has measured.
  GenerationStats Stats() const;
  GenerationStats& times() { return times_; }  // set by the runner
  std::chrono::steady_clock::time_point begun;

  bool done() const { return decoder_.done(); }
  const Decoder& decoder() const { return decoder_; }
  // The sequence's state; [1] is the unconditional one of guidance.
  SequenceState& state(size_t index = 0) { return *states_[index]; }
  size_t num_states() const { return states_.size(); }
  // For a generation that will not run again.
  std::unique_ptr<SequenceState> TakeState() { return std::move(states_[0]); }
  size_t cache_bytes() const;
  uint64_t rows_computed() const;
  uint64_t rows_total() const;

 private:
  friend void StepTogether(Transformer& transformer, std::span<Generation* const> generations);
  void AppendSteps(std::vector<SequenceStep>& batch);
  void Offer(size_t state, uint32_t row, std::span<float> logits, const Weights& weights);
  void Finish(ThreadPool& pool);

  Decoder decoder_;
  GenerationStats times_;
  uint64_t first_step_rows_ = 0;
  size_t num_layers_;
  std::vector<std::unique_ptr<SequenceState>> states_;
  std::vector<TokenId> unconditional_ids_;  // the prompt masked, for guidance
  Mat<float> guided_[2];                    // [wanted, vocab], until both passes are done
  Mat<float> expected_;                     // [block, model_dim], for self-conditioning (StepInput)
};

// One forward pass for each; all must be unfinished.
void StepTogether(Transformer& transformer, std::span<Generation* const> generations);

}  // namespace spa
