// SPA-Cache (Singular Proxies for Adaptive Caching in Diffusion Language Models, arXiv 2602.02544).
// In every layer the rows whose low-rank value proxy moved most since they were last looked at are
// recomputed, up to the layer's budget; the others reuse their cached update.
//
// Keeps per row and layer: K, V, the update (or output) and the proxy.
// Costs per layer: rank * model_dim per row in scope to identify, the whole layer for the budget.
// Where the authors' code leaves their paper, both ways are options (docs/caches.md).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "policies/options.h"
#include "policies/registry.h"
#include "policies/spa_budget.h"
#include "policies/spa_proxy.h"
#include "transformer/cache_policy.h"

namespace spa {

enum class Identifier { kSingular, kValue, kKey, kQuery, kAttnInput, kAttnOutput };

// Which rows compete for the budget between refreshes.
enum class Scope {
  kGen,    // the generated ones (the authors' code)
  kAll,    // all (the paper)
  kReach,  // the generated ones up to the end of the block being decoded; later blocks wait as they
           // were at the last refresh
};

// How the rows of the first layer are chosen. Its input is the embeddings, which tell nothing: that
// of an unchanged token does not move, but what attention makes of it does.
enum class FirstLayer {
  kAttention,  // by what attention made of them, with the largest budget of all layers
  kDense,      // all rows in scope (the authors' code)
  kProxy,      // as in any other layer (the paper)
};

struct SpaOptions {
  Identifier identifier = Identifier::kSingular;
  size_t rank = 0;                   // kSingular
  std::vector<double> ratios;        // budget per layer
  Reuse form = Reuse::kDelta;        // or kOutput, Algorithm 1 read literally
  Scope scope = Scope::kGen;
  bool overwrite_proxy = false;      // compare with the last step (code), or with the last update
  bool full_kv = false;              // keys and values of every row in scope (code)
  FirstLayer first_layer = FirstLayer::kDense;
  size_t warmup = 0;                 // steps after the first that recompute everything
  size_t refresh_prompt = 0;         // recompute everything every so many steps; 0: never again
  size_t refresh_gen = 0;            // recompute the scope every so many steps; 0: never
  // Beyond the paper.
  double drift = 1.0;                // rows more similar than this are left alone (budget: a cap)
  double refresh_drift = 0.0;        // refresh the scope when this much drift was left behind
  bool stale_first = false;          // unchanged rows: those that waited longest go first
  bool focus = false;                // rows that are read and rows just settled go before others
  bool per_token = false;            // the budget is that of a step that settles one token
};

// What all sequences of a model share.
struct SpaModel {
  SpaOptions options;
  std::vector<PackedMatrix> projections;  // kSingular: W_r times the norm's gain, per layer
};

class SpaPolicy : public CachePolicy {
 public:
  explicit SpaPolicy(std::shared_ptr<const SpaModel> model) : model_(std::move(model)) {}

  Reuse reuse() const override { return model_->options.form; }
  RowSet BeginStep(const StepInput& step) override;
  LayerPlan PlanLayer(LayerView& view) override;
  RowSet ChooseRows(const AttentionView& view) override;
  bool can_start_warm() const override { return true; }
  bool AdoptPrefix(const CachePolicy& donor, size_t num_rows) override;
  size_t bytes() const override;
  const SpaModel& model() const { return *model_; }

 private:
  struct LayerState {
    Mat<float> proxies;              // [num_rows, width of the identifier]
    std::vector<uint32_t> computed;  // per row: the step that last recomputed it
    Mat<float> adopted;              // [warm rows, width], until the first step makes room
  };

  // Whether attention comes first and its output is what identifies the rows.
  bool ByAttention(size_t layer) const;
  // Identifiers of the rows in scope.   [scope, width]
  MatView<const float> Identify(LayerView& view);
  // The rows to recompute, given those; remembers their identifiers.
  RowSet Update(size_t layer, const StepInput& step, MatView<const float> proxies,
                ThreadPool& pool);
  RowSet Select(size_t layer, const StepInput& step, MatView<const float> proxies,
                ThreadPool& pool);
  // Nobody sees an output of the last layer but those who read it.
  bool OnlyReadersMatter(size_t layer) const {
    return model_->options.focus && layer + 1 == layers_.size();
  }
  // Puts the rows whose logits are read and those just settled in front; returns their number.
  size_t MoveFocusFirst(const StepInput& step, std::vector<float>& rank) const;

  std::shared_ptr<const SpaModel> model_;
  std::vector<LayerState> layers_;
  RowSet scope_;
  RowSet changed_;                   // rows in scope whose token is not the one they last had there
  std::vector<TokenId> ids_;         // per row: that one
  bool refresh_ = false;             // this step recomputes the whole scope
  double drift_left_behind_ = 0.0;   // mean drift of rows not recomputed, summed since the refresh
  size_t step_ = 0;
  size_t warm_rows_ = 0;             // rows adopted from another sequence
  Activations input_;
  Mat<float> identified_;
};

PolicyFactory MakeSpa(OptionReader& options, const PolicyContext& context);

}  // namespace spa
