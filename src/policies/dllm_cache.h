// dLLM-Cache (Accelerating Diffusion Large Language Models with Adaptive Caching, arXiv
// 2506.06295). Prompt and answer are recomputed at separate intervals. Between two refreshes of the
// answer, each layer projects the values of all its rows and recomputes the share whose value
// vector turned most since the previous step; every other row reuses its cached update.
//
// Keeps per row and layer: K, V, the update (attention + FFN).
// Costs per layer: the value projection of the answer, the whole layer for rho of it; the first
// layer is dense at every step.
// The authors' code keeps attention and FFN outputs apart; they are always refreshed together, so
// one sum is enough. Their top-k breaks ties arbitrarily; here the lower row wins.
#pragma once

#include "policies/registry.h"
#include "transformer/cache_policy.h"

namespace spa {

// The defaults are those of the authors' GSM8K scripts. Their others range, for LLaDA, over 25-100
// and 1-8, for Dream over 5-100 and 1-8; rho is 0.25 in all of them.
struct DllmOptions {
  size_t prompt_interval = 50;  // Dream: 25
  size_t gen_interval = 7;      // Dream: 2
  double rho = 0.25;            // share of the answer recomputed between its refreshes
};

class DllmPolicy : public CachePolicy {
 public:
  explicit DllmPolicy(const DllmOptions& options) : options_(options) {}

  Keeps keeps() const override { return {.reuse = Reuse::kUpdate}; }
  RowSet BeginStep(const StepInput& step) override;
  LayerPlan PlanLayer(LayerView& view) override;

 private:
  // Rows of the answer whose values turned most since the previous step.   values: [gen, kv_dim]
  RowSet Select(LayerView& view, MatView<const float> values);

  DllmOptions options_;
  RowSet all_, prompt_, gen_;
  bool refresh_prompt_ = false, refresh_gen_ = false;
  Mat<float> previous_;  // [gen, kv_dim], scratch
};

std::vector<OptionInfo> DllmOptionTable();
PolicyFactory MakeDllm(OptionReader& options, const PolicyContext& context);

}  // namespace spa
