// Row sets that several caches are made of, and the common part of those that know their rows
// before the step.
#pragma once

#include <cstdint>
#include <span>

#include "transformer/cache_policy.h"

namespace spa {

inline RowSet MaskedRows(const StepInput& step) {
  std::vector<uint32_t> rows;
  for (size_t row = 0; row < step.num_rows(); ++row) {
    if (step.masked[row]) rows.push_back(static_cast<uint32_t>(row));
  }
  return RowSet(std::move(rows));
}

inline RowSet CommittedRows(const StepInput& step) {
  return RowSet({step.committed.begin(), step.committed.end()});
}

// The rows whose logits predict the given positions: with a logit shift the rows before them.
inline RowSet PredictingRows(std::span<const uint32_t> positions, bool logit_shift) {
  std::vector<uint32_t> rows(positions.begin(), positions.end());
  if (logit_shift) {
    for (uint32_t& row : rows) row -= row > 0 ? 1 : 0;
  }
  return RowSet(std::move(rows));
}

// A cache that uses one row set in all layers of a step. The other rows live on only as the keys
// and values of their last recomputation. Rows whose logits the decoder reads always belong to the
// set, so with a logit shift the row before the first wanted position does too.
class OneSetPolicy : public CachePolicy {
 public:
  RowSet BeginStep(const StepInput& step) final {
    rows_ = step.step == 0 ? RowSet::All(step.num_rows()) : ChooseRows(step).Union(step.wanted);
    return rows_;
  }
  LayerPlan PlanLayer(LayerView&) final {
    return {.k_rows = rows_, .v_rows = rows_, .out_rows = rows_, .live = rows_};
  }

 protected:
  // The rows of a step after the first; the first recomputes all.
  virtual RowSet ChooseRows(const StepInput& step) = 0;

 private:
  RowSet rows_;
};

}  // namespace spa
