// Elastic-Cache (Attention Is All You Need for KV Cache in Diffusion LLMs, arXiv 2510.14973). After
// a dense first step, each step recomputes a window of the first open positions, the rows just
// settled and the tracked rows: those that the window attends to most. When the attention of the
// tracked rows has drifted in some layer, all layers after it recompute every row.
//
// Keeps per row and layer: K, V, Q and the layer's input, from which a later layer can restart.
// Costs per layer: the whole layer for the rows named above (or for all), two attention maps of the
// tracked rows, the head-averaged weights of the recomputed ones.
// The paper compares a tracked row's attention over the keys (similarity=keys); the authors' code
// takes the cosine over the heads for each key and averages over all keys (similarity=heads). Rows
// the decoder wants are always computed, so with blocks longer than the window more open rows are.
// Their generation drops everything after the first end-of-text token; here that is the decoder's
// early stop.
#pragma once

#include "policies/registry.h"
#include "policies/step_rows.h"

namespace spa {

struct ElasticOptions {
  size_t beta = 16;           // window; the authors' Dream GSM8K script: 32
  double gamma = 0.9;         // less similar than this: refresh. 0: never
  size_t track = 1;           // tracked rows per layer
  bool block_caching = true;  // off: the window is all open positions
  bool by_key = true;         // similarity over the keys, else over the heads
};

class ElasticPolicy : public CachePolicy {
 public:
  ElasticPolicy(const ElasticOptions& options, const ModelConfig& config)
      : options_(options), num_heads_(config.num_heads), num_layers_(config.num_layers) {}

  Keeps keeps() const override {
    return {.query_layers = num_layers_, .inputs = true, .attention = true};
  }
  RowSet BeginStep(const StepInput& step) override;
  LayerPlan PlanLayer(LayerView& view) override;
  std::optional<RowSet> AfterAttention(const AttentionView& view) override;
  void EndStep(std::span<const uint32_t> positions, std::span<const float> confidence) override;
  size_t bytes() const override;
  size_t BytesFor(const ModelConfig& config, size_t num_rows, size_t kept_rows) const override;

 private:
  bool Testing(size_t layer) const;
  void TrackMostAttended(const AttentionView& view);
  // Mean similarity of the tracked rows' attention before and after this step's update.
  double Similarity(const AttentionView& view) const;

  ElasticOptions options_;
  size_t num_heads_;
  size_t num_layers_;
  RowSet all_, known_;    // visible rows; those that have been computed before
  RowSet rows_;           // recomputed in the current layer
  RowSet open_, window_;  // open positions; the rows that predict the window's
  RowSet tracked_, next_tracked_;
  std::vector<Mat<float>> old_weights_;  // per tracked row [heads, num_rows], of the last step
};

std::vector<OptionInfo> ElasticOptionTable();
PolicyFactory MakeElastic(OptionReader& options, const PolicyContext& context);

}  // namespace spa
