// SPA-Cache (Singular Proxies for Adaptive Caching in Diffusion Language Models, arXiv 2602.02544).
// In every layer the rows that drifted most since they were last recomputed are recomputed again,
// up to the layer's budget; the others reuse their cached update. What shows that a row drifted is
// its low-rank value proxy (the paper), or its attention output (the default): that also sees a row
// whose surroundings moved while its own input did not.
//
// Keeps per row and layer: K, V, the update (or output), and the proxy or query and attention
// output. Costs per layer: rank * model_dim per row in scope to identify, or attention of the
// scope; the whole layer for the budget. Where the authors' code departs from their paper, both
// variants are options (spa_options.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/matmul.h"
#include "policies/spa_options.h"
#include "policies/spa_screen.h"
#include "transformer/cache_policy.h"

namespace spa {

// What all sequences of a model share.
struct SpaModel {
  SpaOptions options;
  std::vector<PackedMatrix> projections;  // kSingular: W_r times the norm's gain, per layer
};

class SpaPolicy : public CachePolicy {
 public:
  explicit SpaPolicy(std::shared_ptr<const SpaModel> model)
      : model_(std::move(model)), options_(model_->options), screen_(options_.min_drift) {}

  Keeps keeps() const override;
  RowSet BeginStep(const StepInput& step) override;
  LayerPlan PlanLayer(LayerView& view) override;
  std::optional<RowSet> BeforeAttention(const KeysView& view) override;
  std::optional<RowSet> AfterAttention(const AttentionView& view) override;
  void EndStep(std::span<const uint32_t> positions, std::span<const float> confidence) override;
  IdentifierShape IdentifierOf(const ModelConfig& config, size_t layer) const override;
  size_t bytes() const override;
  size_t BytesFor(const ModelConfig& config, size_t num_rows, size_t kept_rows) const override;

 private:
  // In the last layer only the rows that are read matter, and with focus they all run.
  bool ChoosesIn(size_t layer) const;
  // Whether a layer attends first and identifies rows by their attention output.
  bool ByAttention(size_t layer) const;
  // Whether rows that hardly moved are left out before attention.
  bool Screens() const;
  // Identifiers of the rows in scope, as they are now.   [scope, width]
  MatView<const float> Identify(LayerView& view);
  MatView<const float> InputsInScope(MatView<const float> x, ThreadPool& pool);
  // The rows to recompute; remembers their identifiers in `kept`.
  RowSet Update(size_t layer, const StepInput& step, MatView<const float> now, KeptRows& kept,
                ThreadPool& pool);
  RowSet Select(size_t layer, const StepInput& step, MatView<const float> now, const KeptRows& kept,
                ThreadPool& pool);
  // Whether a row moved enough to be recomputed if the budget allows it.
  bool Competes(uint32_t row, const StepInput& step, float similarity) const;
  // The rank of each row in scope: lowest is recomputed first, at most 1.
  std::vector<float> Ranks(size_t layer, const StepInput& step,
                           std::span<const float> similarity) const;
  size_t CountOf(size_t layer, const StepInput& step) const;
  // Moves rows to the front and returns their number: those whose token just changed, then those
  // that are read, the surest of the last step first, since they are settled next; when a block
  // begins, also what comes after it.
  size_t MoveFocusFirst(const StepInput& step, std::vector<float>& rank) const;
  size_t PlaceOf(uint32_t row) const;  // among the rows compared

  std::shared_ptr<const SpaModel> model_;
  const SpaOptions& options_;
  std::vector<std::vector<uint32_t>> computed_;  // per layer and row: last recomputed in this step
  size_t answer_begin_ = 0;  // the first row that competes where the prompt does not
  RowSet scope_;
  RowSet compared_;  // rows in scope whose identifiers are looked at in this layer
  RowSet moved_;     // rows in scope whose input to this layer changed in this step, at least
  std::vector<float> confidence_;  // per position, of the last step; 0 where it was not read
  bool refresh_ = false;           // this step recomputes the whole scope
  bool begins_ = false;            // kReach: a block begins with this step
  size_t waited_ = 0;              // tokens settled since rows outside of the block last competed
  size_t intervals_ = 1;           // of SpaOptions::outside until they compete again
  size_t outside_compared_ = 0;    // such rows in all layers of this step
  size_t outside_moved_ = 0;       // of these
  size_t step_ = 0;
  AttentionScreen screen_;
  Activations input_;
  Mat<float> gathered_;    // [scope, model_dim], when the scope is not one range
  Mat<float> identified_;  // [scope, width]
};

}  // namespace spa
