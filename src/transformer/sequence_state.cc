#include "transformer/sequence_state.h"

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

size_t SequenceState::cache_bytes() const {
  size_t bytes = policy_->bytes();
  for (const KvCache& kv : kv_) bytes += kv.bytes();
  for (const Mat<float>& kept : kept_) bytes += kept.bytes();
  return bytes;
}

}  // namespace spa
