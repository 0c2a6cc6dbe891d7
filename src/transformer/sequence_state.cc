#include "transformer/sequence_state.h"

#include <algorithm>

namespace spa {

SequenceState::SequenceState(const ModelConfig& config, size_t num_rows, KvType kv_type,
                             std::unique_ptr<CachePolicy> policy)
    : num_rows_(num_rows), policy_(std::move(policy)), x_(num_rows, config.model_dim) {
  const size_t num_kv = policy_->keeps_kv() ? config.num_layers : 1;
  for (size_t layer = 0; layer < num_kv; ++layer) {
    kv_.emplace_back(num_rows, config.num_kv_heads, config.head_dim, kv_type);
  }
  if (policy_->reuse() != Reuse::kNothing) {
    for (size_t layer = 0; layer < config.num_layers; ++layer) {
      kept_.emplace_back(num_rows, config.model_dim);
    }
  }
}

bool SequenceState::AdoptPrefix(SequenceState& donor, size_t num_rows, ThreadPool& pool) {
  if (kv_.size() != donor.kv_.size() || kept_.size() != donor.kept_.size() ||
      !policy_->AdoptPrefix(*donor.policy_, num_rows)) {
    return false;
  }
  const RowSet rows = RowSet::All(num_rows);
  for (size_t layer = 0; layer < kv_.size(); ++layer) {
    const KvCache& from = donor.kv_[layer];
    Mat<float> keys(num_rows, from.num_kv_heads() * from.head_dim()), values(num_rows, keys.cols());
    for (size_t row = 0; row < num_rows; ++row) {
      from.LoadKey(row, keys.Row(row));
      from.LoadValue(row, values.Row(row));
    }
    kv_[layer].StoreKeys(rows, keys.View(), pool);
    kv_[layer].StoreValues(rows, values.View(), pool);
  }
  for (size_t layer = 0; layer < kept_.size(); ++layer) {
    std::copy_n(donor.kept_[layer].data(), num_rows * kept_[layer].cols(), kept_[layer].data());
  }
  if (donor.queries_.rows() > 0) {
    queries_.Resize(num_rows_, donor.queries_.cols());
    std::copy_n(donor.queries_.data(), num_rows * queries_.cols(), queries_.data());
  }
  return true;
}

size_t SequenceState::cache_bytes() const {
  size_t bytes = policy_->bytes() + queries_.bytes();
  for (const KvCache& kv : kv_) bytes += kv.bytes();
  for (const Mat<float>& kept : kept_) bytes += kept.bytes();
  return bytes;
}

}  // namespace spa
