// Tells which rows need not attend to know that they hardly moved.
//
// SPA-Cache's default measures how far a row's attention output moved since the row was last
// recomputed. Few keys change in a step, so the screen follows every kept query's output in a small
// sketch (kernels/attention_sketch.h); only rows that seem to have moved attend, and are measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/attention_sketch.h"
#include "transformer/cache_policy.h"

namespace spa {

class AttentionScreen {
 public:
  // Rows whose output moved by less than min_drift (1 - cosine) need not attend.
  explicit AttentionScreen(float min_drift) : min_drift_(min_drift) {}

  void BeginStep(const StepInput& step);
  // Whether following so many changed keys costs less than what it probably saves of the attention
  // of num_rows rows.
  bool Pays(size_t num_changes, size_t num_rows, const LayerView& view) const;
  // Keys of the layer change and are not followed.
  void Forget(size_t layer);
  // Follows the change of keys and returns the out_rows that attend; nothing: all.
  std::optional<RowSet> BeforeAttention(const KeysView& view);
  // The rows that did not attend although they moved a little, beyond rounding.
  const RowSet& moved_little() const { return moved_little_; }
  // Learns the outputs of the rows that attended, of which `chosen` are recomputed.
  void AfterAttention(const AttentionView& view, const RowSet& chosen);

  size_t bytes() const;
  static size_t BytesFor(const ModelConfig& config, size_t num_layers, size_t num_rows);

 private:
  // Rows from first_row on: those of which queries are kept.
  struct Layer {
    size_t first_row = 0;
    std::vector<uint8_t> is_known;  // whether log_sums and now hold for a row
    std::vector<uint8_t> has_kept;  // whether kept does
    Mat<float> log_sums;            // [rows, num_heads]
    Mat<float> now;                 // [rows, num_heads * kSketchWidth], sketch of the output
    Mat<float> kept;                // the same when the row was last recomputed
  };
  void FollowRows(const KeysView& view, Layer& layer) const;
  void ReadChanges(const KeysView& view, KeyChanges& changes) const;

  float min_drift_;
  std::vector<Layer> layers_;
  std::vector<float> signs_;
  RowSet visible_, was_visible_;  // in this step and in the one before
  RowSet moved_little_;
  double share_saved_ = 1.0;  // of the rows asked about lately; when a block begins, the best
};

}  // namespace spa
