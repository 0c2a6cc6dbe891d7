#include "transformer/sequence_state.h"

#include <algorithm>

#include "base/error.h"

namespace spa {
namespace {

constexpr TokenId kNeverRan = -1;

// Layers with their own store. All share one if nothing is kept in it and its shape fits all.
size_t KvLayers(const ModelConfig& config, const Keeps& keeps) {
  return keeps.kv || !config.layer_shapes.empty() ? config.num_layers : 1;
}

size_t FirstReusing(const Keeps& keeps, size_t prompt_rows) {
  return keeps.reuse_in_prompt ? 0 : prompt_rows;
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
      tokens_(num_rows, kNeverRan),
      x_(num_rows, config.model_dim) {
  for (size_t layer = 0; layer < KvLayers(config, keeps_); ++layer) {
    const LayerShape shape = config.shape(layer);
    kv_.emplace_back(num_rows, shape.num_kv_heads, shape.head_dim, kv_type);
  }
  for (size_t layer = 0; layer < num_layers_ && reuses(layer); ++layer) {
    kept_.emplace_back(first_reusing_, num_rows, config.model_dim, KeptTypeOf(kv_type));
  }
  for (size_t layer = 0; layer < std::min(keeps_.query_layers, num_layers_); ++layer) {
    queries_.emplace_back(first_reusing_, num_rows, config.q_dim(layer), KeptTypeOf(kv_type));
  }
  for (size_t layer = 0; layer < num_layers_; ++layer) {
    const IdentifierShape shape = policy_->IdentifierOf(config, layer);
    identifiers_.emplace_back(first_reusing_, num_rows, shape.width, shape.type);
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
  Forget(input.renewed);
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

bool SequenceState::HasRun(size_t num_rows) const {
  const auto end = tokens_.begin() + static_cast<ptrdiff_t>(num_rows);
  return std::find(tokens_.begin(), end, kNeverRan) == end;
}

bool SequenceState::AdoptPrefix(SequenceState& donor, size_t num_rows, ThreadPool& pool) {
  if (!keeps_.warm_start || keeps_ != donor.keeps_ || !donor.HasRun(num_rows)) return false;
  // A row that may reuse something is recomputed if the donor kept nothing of it.
  if (donor.first_reusing_ > first_reusing_) num_rows = std::min(num_rows, first_reusing_);
  for (size_t layer = 0; layer < kv_.size(); ++layer) {
    kv_[layer].CopyRows(donor.kv_[layer], num_rows, pool);
  }
  SPA_CHECK(inputs_.empty());
  for (auto part :
       {&SequenceState::kept_, &SequenceState::queries_, &SequenceState::identifiers_}) {
    for (size_t layer = 0; layer < (this->*part).size(); ++layer) {
      (this->*part)[layer].Adopt((donor.*part)[layer], num_rows);
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
  // Only exact caches are shrunk, and they keep nothing else: their identifiers have no width.
  SPA_CHECK(kept_.empty() && queries_.empty() && inputs_.empty());
  num_rows_ = num_rows;
  tokens_.resize(num_rows);
  tokens_.shrink_to_fit();
  hidden_ = {};
  x_ = Mat<float>();
}

size_t SequenceState::cache_bytes() const {
  size_t bytes = policy_->bytes();
  for (const KvCache& kv : kv_) bytes += kv.bytes();
  for (const auto* part : {&kept_, &queries_, &identifiers_}) {
    for (const KeptRows& rows : *part) bytes += rows.bytes();
  }
  for (const Mat<float>& inputs : inputs_) bytes += inputs.bytes();
  return bytes;
}

size_t SequenceState::BytesFor(const ModelConfig& config, size_t num_rows, size_t prompt_rows,
                               KvType kv_type, const CachePolicy& policy) {
  const Keeps keeps = policy.keeps();
  const size_t layers = config.num_layers;
  size_t kept_layers = keeps.reuse == Reuse::kNothing ? 0 : layers;
  if (kept_layers > 0 && !keeps.reuse_in_last_layer) --kept_layers;
  const size_t kept_rows = num_rows - std::min(num_rows, FirstReusing(keeps, prompt_rows));
  size_t bytes = policy.BytesFor(config, num_rows, kept_rows);
  for (size_t layer = 0; layer < KvLayers(config, keeps); ++layer) {
    const LayerShape shape = config.shape(layer);
    bytes += KvCache::BytesFor(num_rows, shape.num_kv_heads, shape.head_dim, kv_type);
  }
  bytes += kept_layers * KeptRows::BytesFor(kept_rows, config.model_dim, KeptTypeOf(kv_type));
  for (size_t layer = 0; layer < std::min(keeps.query_layers, layers); ++layer) {
    bytes += KeptRows::BytesFor(kept_rows, config.q_dim(layer), KeptTypeOf(kv_type));
  }
  for (size_t layer = 0; layer < layers; ++layer) {
    const IdentifierShape shape = policy.IdentifierOf(config, layer);
    bytes += KeptRows::BytesFor(kept_rows, shape.width, shape.type);
  }
  if (keeps.inputs) bytes += layers * num_rows * config.model_dim * sizeof(float);
  return bytes;
}

}  // namespace spa
