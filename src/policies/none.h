// No cache: every row, every layer, every step. The baseline, and the definition of "exact".
#pragma once

#include "transformer/cache_policy.h"

namespace spa {

class NonePolicy : public CachePolicy {
 public:
  Keeps keeps() const override { return {.kv = false}; }
  RowSet BeginStep(const StepInput& step) override {
    all_ = step.visible;
    return all_;
  }
  LayerPlan PlanLayer(LayerView&) override { return LayerPlan::Of(all_); }

 private:
  RowSet all_;
};

}  // namespace spa
