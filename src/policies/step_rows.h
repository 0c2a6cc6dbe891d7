// The common part of caches that know their rows before the step.
#pragma once

#include "transformer/cache_policy.h"

namespace spa {

// A cache that uses one row set in all layers of a step. The other rows are present only through
// the keys and values of their last recomputation.
class OneSetPolicy : public CachePolicy {
 public:
  RowSet BeginStep(const StepInput& step) final {
    rows_ = step.step == 0 ? step.visible : RowsOfStep(step);
    return rows_;
  }
  LayerPlan PlanLayer(LayerView&) final { return LayerPlan::Of(rows_); }

 protected:
  // The rows of a step after the first; the first recomputes all.
  virtual RowSet RowsOfStep(const StepInput& step) = 0;

 private:
  RowSet rows_;
};

}  // namespace spa
