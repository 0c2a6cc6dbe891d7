// The example of docs/adding-a-cache.md. All rows when a block begins; after that the block and
// `margin` rows on either side of it.
//
// Keeps per row and layer: K, V.
// Costs per layer: the whole layer for those rows; nothing to choose them.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "policies/registry.h"
#include "policies/step_rows.h"

namespace spa {

class NearPolicy : public OneSetPolicy {
 public:
  explicit NearPolicy(size_t margin) : margin_(margin) {}

 protected:
  RowSet RowsOfStep(const StepInput& step) override {
    if (step.step_in_block == 0) return step.visible;
    const size_t begin = step.block_begin - std::min(margin_, step.block_begin);
    // A token that changed elsewhere is computed with its new embedding.
    return step.visible.Between(begin, step.block_end + margin_).Union(step.changed);
  }

 private:
  size_t margin_;
};

inline std::vector<OptionInfo> NearOptionTable() {
  return {OptionInfo::Count("margin", 0, 1 << 20, "8", "Rows recomputed beside the block")};
}

inline PolicyFactory MakeNear(OptionReader& options, const PolicyContext&) {
  const size_t margin = options.Count("margin", 8);
  return [margin] { return std::make_unique<NearPolicy>(margin); };
}

}  // namespace spa
