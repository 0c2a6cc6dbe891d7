#include "transformer/sequence_state.h"

#include <algorithm>

#include "base/error.h"

namespace spa {
namespace {

constexpr TokenId kNeverRan = -1;

// Layers with a store of their own. All share one if nothing is kept in it and it fits all.
size_t KvLayers(const ModelConfig& config, const Keeps& keeps) {
  return keeps.kv || !config.layer_shapes.empty() ? config.num_layers : 1;
}

size_t FirstReusing(const Keeps& keeps, size_t prompt_rows) {
  return keeps.reuse_in_prompt ? 0 : prompt_rows;
}

// Copies the first `num_rows` rows into a matrix that has `all_rows`.
void CopyRows(const Mat<float>& from, size_t num_rows, size_t all_rows, Mat<float>& to) {
  if (from.rows() == 0) return;
  if (to.rows() == 0) to.Resize(all_rows, from.cols());
  std::copy_n(from.data(), num_rows * from.cols(), to.data());
}

}  // namespace

SequenceState::SequenceState(const ModelConfig& config, size_t num_rows, size_t prompt_rows,
                             KvType kv_type, std::unique_ptr<CachePolicy> policy)
    : num_rows_(num_rows),
      num_layers_(config.num_layers),
      attention_(config.attention),
      policy_(std::move(policy)),
      keeps_(policy_->keeps()),
      first_reusing_(FirstReusing(keeps_, prompt_rows)),
      identifiers_(config.num_layers),
      tokens_(num_rows, kNeverRan),
      x_(num_rows, config.model_dim) {
  for (size_t layer = 0; layer < KvLayers(config, keeps_); ++layer) {
    const LayerShape shape = config.shape(layer);
    kv_.emplace_back(num_rows, shape.num_kv_heads, shape.head_dim, kv_type);
  }
  for (size_t layer = 0; layer < num_layers_ && reuses(layer); ++layer) {
    kept_.emplace_back(first_reusing_, num_rows, config.model_dim, kv_type);
  }
  for (size_t layer = 0; layer < std::min(keeps_.query_layers, num_layers_); ++layer) {
    queries_.emplace_back(num_rows, config.q_dim(layer));
  }
  for (size_t layer = 0; layer < num_layers_ && keeps_.inputs; ++layer) {
    inputs_.emplace_back(num_rows, config.model_dim);
  }
}

void SequenceState::Describe(StepInput& input) {
  hidden_.clear();
  if (input.visible.size() < num_rows_) {
    hidden_.assign(num_rows_, 1);
    for (const uint32_t row : input.visible) hidden_[row] = 0;
  }
  std::vector<uint32_t> never, news;
  for (const uint32_t row : input.visible) {
    if (tokens_[row] == input.ids[row]) continue;
    news.push_back(row);
    if (tokens_[row] == kNeverRan) never.push_back(row);
  }
  input.never_computed = RowSet(std::move(never));
  input.new_tokens = RowSet(std::move(news));
}

void SequenceState::Enter(const RowSet& rows, std::span<const TokenId> ids) {
  for (const uint32_t row : rows) tokens_[row] = ids[row];
}

void SequenceState::Forget(const RowSet& rows) {
  for (const uint32_t row : rows) tokens_[row] = kNeverRan;
}

bool SequenceState::AdoptPrefix(SequenceState& donor, size_t num_rows, ThreadPool& pool) {
  const bool ran =
      std::find(donor.tokens_.begin(), donor.tokens_.begin() + static_cast<ptrdiff_t>(num_rows),
                kNeverRan) == donor.tokens_.begin() + static_cast<ptrdiff_t>(num_rows);
  if (!keeps_.warm_start || keeps_ != donor.keeps_ || !ran) return false;
  for (size_t layer = 0; layer < kv_.size(); ++layer) {
    kv_[layer].CopyRows(donor.kv_[layer], num_rows, pool);
  }
  for (size_t layer = 0; layer < kept_.size(); ++layer) {
    kept_[layer].Adopt(donor.kept_[layer], num_rows);
  }
  for (auto part :
       {&SequenceState::queries_, &SequenceState::inputs_, &SequenceState::identifiers_}) {
    for (size_t layer = 0; layer < (this->*part).size(); ++layer) {
      CopyRows((donor.*part)[layer], num_rows, num_rows_, (this->*part)[layer]);
    }
  }
  std::copy_n(donor.tokens_.begin(), num_rows, tokens_.begin());
  return true;
}

void SequenceState::Shrink(size_t num_rows, ThreadPool& pool) {
  for (KvCache& kv : kv_) {
    KvCache rows(num_rows, kv.num_kv_heads(), kv.head_dim(), kv.type());
    rows.CopyRows(kv, num_rows, pool);
    kv = std::move(rows);
  }
  SPA_CHECK(kept_.empty());  // only exact caches are shrunk, and they reuse no update
  for (auto* part : {&queries_, &inputs_, &identifiers_}) {
    for (Mat<float>& matrix : *part) {
      Mat<float> rows;
      CopyRows(matrix, num_rows, num_rows, rows);
      matrix = std::move(rows);
    }
  }
  num_rows_ = num_rows;
  tokens_.resize(num_rows);
  tokens_.shrink_to_fit();
  hidden_ = {};
  x_ = Mat<float>();
}

size_t SequenceState::cache_bytes() const {
  size_t bytes = policy_->bytes();
  for (const KvCache& kv : kv_) bytes += kv.bytes();
  for (const KeptRows& kept : kept_) bytes += kept.bytes();
  for (const auto* part : {&queries_, &inputs_, &identifiers_}) {
    for (const Mat<float>& matrix : *part) bytes += matrix.bytes();
  }
  return bytes;
}

size_t SequenceState::BytesFor(const ModelConfig& config, size_t num_rows, size_t prompt_rows,
                               KvType kv_type, const CachePolicy& policy) {
  const Keeps keeps = policy.keeps();
  const size_t layers = config.num_layers;
  size_t kept_layers = keeps.reuse == Reuse::kNothing ? 0 : layers;
  if (kept_layers > 0 && !keeps.reuse_in_last_layer) --kept_layers;
  const size_t query_layers = std::min(keeps.query_layers, layers);
  const size_t input_layers = keeps.inputs ? layers : 0;
  size_t floats = input_layers * config.model_dim;
  for (size_t layer = 0; layer < query_layers; ++layer) floats += config.q_dim(layer);
  size_t kv_bytes = 0;
  for (size_t layer = 0; layer < KvLayers(config, keeps); ++layer) {
    const LayerShape shape = config.shape(layer);
    kv_bytes += KvCache::BytesFor(num_rows, shape.num_kv_heads, shape.head_dim, kv_type);
  }
  const size_t kept_rows = num_rows - std::min(num_rows, FirstReusing(keeps, prompt_rows));
  return kv_bytes + kept_layers * KeptRows::BytesFor(kept_rows, config.model_dim, kv_type) +
         num_rows * floats * sizeof(float) + policy.BytesFor(config, num_rows);
}

}  // namespace spa
