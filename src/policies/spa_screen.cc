#include "policies/spa_screen.h"

#include <algorithm>
#include <cmath>

#include "kernels/parallel_rows.h"
#include "kernels/rows.h"

namespace spa {
namespace {

// A sketch may show less than the true drift: eight sums per head, of which one may hold all of it.
constexpr float kMargin = 1.0f / 8;
// Less is rounding.
constexpr float kLeastDrift = 1e-6f;
// What a changed key costs a row that is followed, in keys that it attends to: two scores and no
// value, but one by one, and as much for the rest as for so many dimensions.
constexpr double kCostOfChange = 2.0, kOtherDimensions = 64.0;
// How many layers' answers share_saved_ remembers.
constexpr double kMemory = 16.0;

}  // namespace

void AttentionScreen::BeginStep(const StepInput& step) {
  was_visible_ = std::move(visible_);
  visible_ = step.visible;
  // Keys appear only as rows that are computed for the first time, and never disappear.
  const bool is_followed = !step.shadow_begin && visible_.Includes(was_visible_) &&
                           step.never_computed.Includes(visible_.Without(was_visible_));
  if (step.step == 0 || !is_followed) layers_.clear();
  if (step.step_in_block == 0) share_saved_ = 1.0;
}

bool AttentionScreen::Pays(size_t num_changes, size_t num_rows, const LayerView& view) const {
  const auto head_dim = static_cast<double>(view.kv->head_dim());
  const size_t num_followed = view.layer < layers_.size() ? layers_[view.layer].is_known.size() : 0;
  const double cost = static_cast<double>(num_changes * num_followed) * kCostOfChange *
                      (1.0 + kOtherDimensions / head_dim);
  return cost < share_saved_ * static_cast<double>(num_rows * view.step->visible.size());
}

void AttentionScreen::Forget(size_t layer) {
  moved_little_ = RowSet();
  if (layer < layers_.size()) std::ranges::fill(layers_[layer].is_known, 0);
}

std::optional<RowSet> AttentionScreen::BeforeAttention(const KeysView& view) {
  moved_little_ = RowSet();
  if (view.layer >= layers_.size() || layers_[view.layer].is_known.empty()) return {};
  Layer& layer = layers_[view.layer];
  if (!view.rows->empty()) FollowRows(view, layer);
  const RowSet& rows = view.plan->out_rows;
  std::vector<float> drift(rows.size(), 2.0f);
  ParallelRows(*view.pool, rows.size(), layer.now.cols(), [&](size_t i) {
    if (rows[i] < layer.first_row) return;
    const size_t place = rows[i] - layer.first_row;
    if (layer.is_known[place] == 0) return;
    drift[i] = 1.0f - Cosine(layer.now.Row(place), layer.kept.Row(place), layer.now.cols());
  });
  std::vector<uint32_t> attend, little;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (drift[i] >= kMargin * min_drift_ || view.step->changed.Contains(rows[i])) {
      attend.push_back(rows[i]);
    } else if (drift[i] > kLeastDrift) {
      little.push_back(rows[i]);
    }
  }
  if (!rows.empty()) {
    const double saved =
        1.0 - static_cast<double>(attend.size()) / static_cast<double>(rows.size());
    share_saved_ += (saved - share_saved_) / kMemory;
  }
  moved_little_ = RowSet(std::move(little));
  return RowSet(std::move(attend));
}

void AttentionScreen::ReadChanges(const KeysView& view, KeyChanges& changes) const {
  const KvCache& kv = *view.kv;
  const size_t count = view.rows->size(), kv_dim = view.old_k.cols;
  changes.num_heads = view.config->num_heads;
  changes.head_dim = kv.head_dim();
  changes.group = changes.num_heads / kv.num_kv_heads();
  changes.score_scale = view.config->attention_scale != 0.0f
                            ? view.config->attention_scale
                            : 1.0f / std::sqrt(static_cast<float>(changes.head_dim));
  for (Mat<float>* keys : {&changes.old_keys, &changes.new_keys}) keys->Resize(count, kv_dim);
  for (Mat<float>* values : {&changes.old_values, &changes.new_values}) {
    values->Resize(count, changes.num_heads * kSketchWidth);
  }
  changes.was_seen.resize(count);
  const auto sketch = [&](const float* from, float* to) {
    SketchHeads(from, changes.num_heads, changes.head_dim, changes.group, signs_.data(), to);
  };
  ParallelRows(*view.pool, count, 4 * kv_dim, [&](size_t i) {
    const uint32_t row = (*view.rows)[i];
    changes.was_seen[i] = was_visible_.Contains(row) ? 1 : 0;
    std::copy_n(view.old_k.Row(i), kv_dim, changes.old_keys.Row(i));
    sketch(view.old_v.Row(i), changes.old_values.Row(i));
    kv.LoadKey(row, changes.new_keys.Row(i));
    thread_local std::vector<float> value;
    value.resize(kv_dim);
    kv.LoadValue(row, value.data());
    sketch(value.data(), changes.new_values.Row(i));
  });
}

void AttentionScreen::FollowRows(const KeysView& view, Layer& layer) const {
  thread_local KeyChanges changes_of_thread;  // for all sequences
  KeyChanges& changes = changes_of_thread;
  ReadChanges(view, changes);
  if (view.plan->q_rows) {
    for (const uint32_t row : *view.plan->q_rows) {
      if (row >= layer.first_row) layer.is_known[row - layer.first_row] = 0;
    }
  }
  std::vector<size_t> places;
  for (size_t place = 0; place < layer.is_known.size(); ++place) {
    if (layer.is_known[place] != 0) places.push_back(place);
  }
  const size_t q_dim = changes.num_heads * changes.head_dim;
  const size_t num_parts = (places.size() + kFollowedTogether - 1) / kFollowedTogether;
  ParallelRows(*view.pool, num_parts, kFollowedTogether * changes.size() * q_dim, [&](size_t part) {
    thread_local Mat<float> queries;
    queries.Resize(kFollowedTogether, q_dim);
    std::vector<FollowedOutput> outputs;
    const size_t first = part * kFollowedTogether;
    const size_t end = std::min(places.size(), first + kFollowedTogether);
    for (size_t i = first; i < end; ++i) {
      float* query = queries.Row(i - first);
      view.kept_q->Load(static_cast<uint32_t>(layer.first_row + places[i]), query);
      outputs.push_back({query, layer.log_sums.Row(places[i]), layer.now.Row(places[i])});
    }
    Follow(changes, outputs);
    for (size_t i = first; i < end; ++i) {
      if (!outputs[i - first].is_trusted) layer.is_known[places[i]] = 0;
    }
  });
}

void AttentionScreen::AfterAttention(const AttentionView& view, const RowSet& chosen) {
  const size_t num_heads = view.num_heads;
  if (layers_.size() <= view.layer) layers_.resize(view.layer + 1);
  Layer& layer = layers_[view.layer];
  const size_t q_dim = view.heads.cols, head_dim = q_dim / num_heads;
  if (signs_.size() < q_dim) signs_ = SketchSigns(q_dim);
  if (layer.is_known.empty()) {
    layer.first_row = view.identifiers->first_row();
    const size_t rows = view.step->num_rows() - std::min(layer.first_row, view.step->num_rows());
    layer.is_known.assign(rows, 0);
    layer.has_kept.assign(rows, 0);
    layer.log_sums.Resize(rows, num_heads);
    layer.now.Resize(rows, num_heads * kSketchWidth);
    layer.kept.Resize(rows, num_heads * kSketchWidth);
  }
  const bool is_learned = view.log_sums.data != nullptr;
  ParallelRows(*view.pool, view.out_rows->size(), q_dim, [&](size_t i) {
    const uint32_t row = (*view.out_rows)[i];
    if (row < layer.first_row) return;
    const size_t place = row - layer.first_row;
    layer.is_known[place] = is_learned ? 1 : 0;
    if (!is_learned) return;
    std::copy_n(view.log_sums.Row(i), num_heads, layer.log_sums.Row(place));
    float* now = layer.now.Row(place);
    SketchHeads(view.heads.Row(i), num_heads, head_dim, 1, signs_.data(), now);
    if (chosen.Contains(row)) {
      std::copy_n(now, layer.now.cols(), layer.kept.Row(place));
    } else if (layer.has_kept[place] == 0) {  // adopted from another sequence
      std::vector<float> output(q_dim);
      view.identifiers->Load(row, output.data());
      SketchHeads(output.data(), num_heads, head_dim, 1, signs_.data(), layer.kept.Row(place));
    }
    layer.has_kept[place] = 1;
  });
}

size_t AttentionScreen::bytes() const {
  size_t bytes = signs_.size() * sizeof(float);
  for (const Layer& layer : layers_) {
    bytes +=
        2 * layer.is_known.size() + layer.log_sums.bytes() + layer.now.bytes() + layer.kept.bytes();
  }
  return bytes;
}

size_t AttentionScreen::BytesFor(const ModelConfig& config, size_t num_layers, size_t num_rows) {
  const size_t row = config.num_heads * (1 + 2 * kSketchWidth) * sizeof(float) + 2;
  return num_layers * num_rows * row + config.max_q_dim() * sizeof(float);
}

}  // namespace spa
