// One step of a diffusion language model over a batch of sequences. The dense pass is the step in
// which every policy chooses all rows; there is no other code path. A sequence's numbers do not
// depend on the rest of the batch or on the thread count.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/matrix.h"
#include "base/phase_clock.h"
#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "kernels/pointwise.h"
#include "model/config.h"
#include "model/weights.h"
#include "transformer/cache_policy.h"
#include "transformer/sequence_state.h"

namespace spa {

class LayerStep;

struct SequenceStep {
  SequenceState* state = nullptr;
  StepInput input;
};

// Receives the logits of a row of batch[sequence]: every wanted row, and the checked rows that
// reached the last layer. Called once per row, concurrently from the threads of the pool.
// logits: [vocab_rows], may be overwritten
using LogitSink = std::function<void(size_t sequence, uint32_t row, std::span<float> logits)>;

class Transformer {
 public:
  // All three must outlive the object.
  Transformer(const ModelConfig& config, const Weights& weights, ThreadPool& pool);
  ~Transformer();

  // Called after each layer of a step, to report the progress of a long one.
  using OnLayer = std::function<void(size_t done, size_t layers)>;
  void set_on_layer(OnLayer on_layer) { on_layer_ = std::move(on_layer); }

  // Also fills in the part of StepInput that the transformer sets.
  void Step(std::span<SequenceStep> batch, const LogitSink& sink);

  // An upper bound of the workspace of a step over `num_rows` rows, summed over its sequences. It
  // is kept for the next step.
  static size_t WorkspaceBytes(const ModelConfig& config, size_t num_rows);
  // Frees that memory; the next step allocates what it needs.
  void ReleaseWorkspace();

  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return weights_; }
  ThreadPool& pool() { return pool_; }
  PhaseClock& clock() { return clock_; }

 private:
  void GrowRopes(size_t num_positions);
  // Self-conditioning: adds to rows of the block what the last step expected there.
  void Condition(SequenceStep& sequence, const RowSet& rows);
  void Logits(std::span<const SequenceStep> batch, const LogitSink& sink);

  const ModelConfig& config_;
  const Weights& weights_;
  ThreadPool& pool_;
  OnLayer on_layer_;
  std::array<RopeTable, 2> ropes_;  // grow with the longest sequence seen
  PhaseClock clock_;
  std::unique_ptr<LayerStep> layer_;  // one object, with its workspace, runs all layers
  Mat<float> final_;                  // [wanted rows of the batch, model_dim]
  Mat<float> logits_;                 // [kLogitRows, vocab_rows]
  Activations final_rows_;
  Mat<float> expected_, gate_, up_, condition_;  // [rows, model_dim or ffn_dim], of Condition
  Activations condition_rows_;
};

}  // namespace spa
