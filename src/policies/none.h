// No cache: every row, every layer, every step. The baseline, and the definition of "exact".
#pragma once

#include "transformer/cache_policy.h"

namespace spa {

class NonePolicy : public CachePolicy {
 public:
  bool keeps_kv() const override { return false; }
  RowSet BeginStep(const StepInput& step) override {
    all_ = RowSet::All(step.num_rows());
    return all_;
  }
  LayerPlan PlanLayer(LayerView&) override {
    return {.k_rows = all_, .v_rows = all_, .out_rows = all_, .live = all_};
  }

 private:
  RowSet all_;
};

}  // namespace spa
