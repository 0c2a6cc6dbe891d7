// The cache of block diffusion, exact where a row sees no block after its own: once the tokens of a
// block are final, so are its keys and values. A step computes its block; the first step of a block
// also recomputes the block before, with its final tokens.
//
// Keeps per row and layer: K, V. Costs per layer: the whole layer for the block; nothing to choose
// it. The reference programs store a finished block in a separate pass; fusing that pass with the
// first one of the next block gives the same numbers. With `parts` a pass over a sub-block
// (Fast-dLLM v2) computes only its rows; the rest of the block stays as the last pass over the
// whole block left it. An approximation until the block is finished.
#pragma once

#include "policies/registry.h"
#include "transformer/cache_policy.h"

namespace spa {

class BlockPolicy : public CachePolicy {
 public:
  BlockPolicy(size_t refresh, bool parts) : refresh_(refresh), parts_(parts) {}

  Keeps keeps() const override {
    return {.needs_block_attention = refresh_ != 1, .warm_start = !parts_};
  }
  RowSet BeginStep(const StepInput& step) override;
  LayerPlan PlanLayer(LayerView&) override { return LayerPlan::Of(rows_); }

 private:
  size_t refresh_;  // recompute everything every this many steps; 0: never
  bool parts_;
  size_t block_begin_ = 0;
  RowSet rows_;
};

std::vector<OptionInfo> BlockOptionTable();
PolicyFactory MakeBlock(OptionReader& options, const PolicyContext& context);

}  // namespace spa
