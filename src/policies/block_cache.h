// The cache of block diffusion, exact where a row sees no block after its own: once the tokens of a
// block are final, so are its keys and values. A step computes its block; the first step of a block
// also recomputes the block before, with its final tokens.
//
// Keeps per row and layer: K, V.
// Costs per layer: the whole layer for the block; nothing to choose it.
// The reference programs store a finished block in a pass of its own; fusing that pass with the
// first one of the next block gives the same numbers.
#pragma once

#include "policies/registry.h"
#include "transformer/cache_policy.h"

namespace spa {

class BlockPolicy : public CachePolicy {
 public:
  explicit BlockPolicy(size_t refresh) : refresh_(refresh) {}

  Keeps keeps() const override {
    return {.needs_block_attention = refresh_ != 1, .warm_start = true};
  }
  RowSet BeginStep(const StepInput& step) override;
  LayerPlan PlanLayer(LayerView&) override { return LayerPlan::Of(rows_); }

 private:
  size_t refresh_;  // recompute everything every this many steps; 0: never
  size_t block_begin_ = 0;
  RowSet rows_;
};

std::vector<OptionInfo> BlockOptionTable();
PolicyFactory MakeBlock(OptionReader& options, const PolicyContext& context);

}  // namespace spa
