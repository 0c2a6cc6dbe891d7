// One transformer layer over the chosen rows of a batch of sequences, with the scratch it needs.
// The rows of all sequences are gathered into one matrix, so that a batch of sparse updates is one
// efficient product with each weight.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "base/matrix.h"
#include "base/phase_clock.h"
#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/pointwise.h"
#include "model/config.h"
#include "model/weights.h"
#include "transformer/cache_policy.h"
#include "transformer/experts.h"

namespace spa {

class SequenceState;
struct SequenceStep;

class LayerStep {
 public:
  // The widest matrices of a layer are computed this many rows at a time: 25 MB for LLaDA, which
  // fits a large L3; all 8192 rows of a prompt would take 800 MB.
  static constexpr size_t kFfnRows = 256;

  // ropes: for ordinary layers, and for wide ones (ModelConfig::wide).
  LayerStep(const ModelConfig& config, const std::array<RopeTable, 2>& ropes, ThreadPool& pool,
            PhaseClock& clock);

  // live[s]: rows of batch[s] that enter the layer; on return those that leave it.
  void Run(size_t layer, const LayerWeights& weights, std::span<const SequenceStep> batch,
           std::vector<RowSet>& live);

 private:
  class View;
  // Rows of every sequence, stacked in one matrix: sequence s owns [first[s], first[s + 1]).
  struct Stack {
    std::vector<const RowSet*> rows;
    std::vector<size_t> first = {0};
    void Add(const RowSet& set) {
      rows.push_back(&set);
      first.push_back(first.back() + set.size());
    }
    size_t size() const { return first.back(); }
    bool operator==(const Stack& other) const;
  };

  void Plan(std::span<const SequenceStep> batch, std::vector<RowSet>& live);
  void CompletePlan(const SequenceStep& sequence, const RowSet& live, LayerPlan& plan);
  void RestoreInputs(SequenceState& state, const RowSet& live, const RowSet& planned);
  void NormInputs(std::span<const SequenceStep> batch);
  void RefreshKeysValues(std::span<const SequenceStep> batch);
  // Keeps the keys and values that will be renewed; then asks who attends.
  void CopyOldKeys(std::span<const SequenceStep> batch);
  void AskBeforeAttention(std::span<const SequenceStep> batch);
  void MakeQueries(std::span<const SequenceStep> batch);
  void Attend(std::span<const SequenceStep> batch);
  AttentionView Attended(std::span<const SequenceStep> batch, size_t s,
                         MatView<const float> mean_weights);
  bool LogSumsOf(std::span<const SequenceStep> batch, size_t s) const;
  void KeepChosen(std::span<const SequenceStep> batch, std::span<std::optional<RowSet>> chosen);
  void FeedForward(std::span<const SequenceStep> batch);
  void DenseFfn();
  void ExpertsBesideDense();
  void ScaleOutputs(std::span<const SequenceStep> batch);
  void UpdateRows(std::span<const SequenceStep> batch, std::vector<RowSet>& live);

  bool IsLastLayer() const { return layer_ + 1 == config_.num_layers; }

  // out = normed rows of `stack` times w; the rows must be among the normed ones.
  void Project(const Stack& stack, const PackedMatrix& w, const std::vector<float>& bias,
               Mat<float>& out);
  // Norms the heads, unless `gain` is empty, and rotates them.   gain: [head_dim]
  void PlaceHeads(std::span<const SequenceStep> batch, const Stack& stack,
                  const std::vector<float>& gain, Mat<float>& rows);

  const ModelConfig& config_;
  const std::array<RopeTable, 2>& ropes_;
  ThreadPool& pool_;
  PhaseClock& clock_;

  // The layer being run.
  size_t layer_ = 0;
  LayerShape shape_;
  const LayerWeights* weights_ = nullptr;
  std::vector<LayerPlan> plans_;     // per sequence
  std::vector<RowSet> in_rows_;      // per sequence: rows whose q, k or v is projected
  std::vector<RowSet> valued_rows_;  // per sequence: rows whose values a policy projected already
  std::vector<Mat<float>> valued_;   // per sequence: those values

  std::vector<RowSet> renewed_;  // per sequence: rows whose k or v is renewed, if the plan asks
  std::vector<Mat<float>> old_k_, old_v_;  // per sequence: what these were

  Mat<float> normed_;  // [in rows, model_dim]
  Activations normed_rows_;
  Stack in_, out_;     // the rows of normed_; the rows of the plans' out_rows
  Mat<float> subset_;  // [fewer rows, model_dim], gathered from normed_
  Activations subset_rows_;
  Mat<float> q_, k_, v_;  // [rows, q_dim or kv_dim]
  Mat<float> all_q_;      // [out rows, q_dim], where some queries are kept ones
  std::vector<MatView<const float>> queries_;  // per sequence: [out rows, q_dim], after RoPE
  Mat<float> heads_;         // [out rows, q_dim], attention before the output projection
  Mat<float> mean_weights_;  // [out rows, num_rows] of one sequence
  Mat<float> log_sums_;      // [out rows, num_heads]
  Activations heads_rows_;
  Mat<float> attn_;        // [out rows, model_dim]
  Mat<float> hidden_;      // [out rows, model_dim], residual stream after attention
  Mat<float> ffn_normed_;  // [out rows, model_dim]
  Activations ffn_rows_;
  Mat<float> gate_, up_;  // [some of the out rows, ffn_dim]
  Activations gate_rows_;
  ExpertStep experts_;
  Mat<float> routed_, beside_;  // [out rows, model_dim], with a dense network beside the experts
  Mat<float> ffn_;              // [out rows, model_dim]
  Mat<float> view_normed_;      // [rows, model_dim], for LayerView::Normed
  Activations view_rows_;
};

}  // namespace spa
