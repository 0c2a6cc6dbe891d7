// Fast-dLLM (Training-free Acceleration of Diffusion LLM by Enabling KV Cache and Parallel
// Decoding, arXiv 2505.22618): block caches. The first step of a block recomputes every row; the
// others only the block and what follows it (prefix cache), or the block alone (dual cache).
//
// Keeps per row and layer: K, V.
// Costs per layer: the whole layer for the rows named above; nothing to choose them.
// With a logit shift (Dream) the authors settle a block's first position in the block's first step,
// whatever its confidence, because its logits come from the row before the block, which later steps
// leave out. Here that row is recomputed while its position is open, so the decoder is free. Their
// first release runs one more step when the first one settled the whole block; here the next block
// begins.
#pragma once

#include "policies/registry.h"
#include "policies/step_rows.h"

namespace spa {

struct FastOptions {
  bool dual = false;   // rows after the block are kept too
  size_t refresh = 0;  // beyond the paper: recompute all rows every this many steps of a block
};

class FastPolicy : public OneSetPolicy {
 public:
  explicit FastPolicy(const FastOptions& options) : options_(options) {}

 protected:
  RowSet RowsOfStep(const StepInput& step) override {
    const bool refresh = options_.refresh > 0 && step.step_in_block % options_.refresh == 0;
    if (step.step_in_block == 0 || refresh) return step.visible;
    const RowSet rows =
        step.visible.Between(step.block_begin, options_.dual ? step.block_end : step.num_rows());
    // A token outside the block that changed is computed with its new embedding.
    return rows.Union(step.changed);
  }

 private:
  FastOptions options_;
};

std::vector<OptionInfo> FastOptionTable();
PolicyFactory MakeFastPrefix(OptionReader& options, const PolicyContext& context);
PolicyFactory MakeFastDual(OptionReader& options, const PolicyContext& context);

}  // namespace spa
