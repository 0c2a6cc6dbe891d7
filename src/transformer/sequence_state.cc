#include "transformer/sequence_state.h"

#include <algorithm>

namespace spa {
namespace {

constexpr TokenId kNeverRan = -1;

// Copies the first `num_rows` rows into a matrix that has `all_rows`.
void CopyRows(const Mat<float>& from, size_t num_rows, size_t all_rows, Mat<float>& to) {
  if (from.rows() == 0) return;
  if (to.rows() == 0) to.Resize(all_rows, from.cols());
  std::copy_n(from.data(), num_rows * from.cols(), to.data());
}

}  // namespace

SequenceState::SequenceState(const ModelConfig& config, size_t num_rows, KvType kv_type,
                             std::unique_ptr<CachePolicy> policy)
    : num_rows_(num_rows),
      num_layers_(config.num_layers),
      attention_(config.attention),
      policy_(std::move(policy)),
      keeps_(policy_->keeps()),
      identifiers_(config.num_layers),
      tokens_(num_rows, kNeverRan),
      x_(num_rows, config.model_dim) {
  for (size_t layer = 0; layer < (keeps_.kv ? num_layers_ : 1); ++layer) {
    kv_.emplace_back(num_rows, config.num_kv_heads, config.head_dim, kv_type);
  }
  for (size_t layer = 0; layer < num_layers_ && reuses(layer); ++layer) {
    kept_.emplace_back(num_rows, config.model_dim);
  }
  for (size_t layer = 0; layer < std::min(keeps_.query_layers, num_layers_); ++layer) {
    queries_.emplace_back(num_rows, config.q_dim());
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

bool SequenceState::AdoptPrefix(SequenceState& donor, size_t num_rows, ThreadPool& pool) {
  const bool ran =
      std::find(donor.tokens_.begin(), donor.tokens_.begin() + static_cast<ptrdiff_t>(num_rows),
                kNeverRan) == donor.tokens_.begin() + static_cast<ptrdiff_t>(num_rows);
  if (!keeps_.warm_start || keeps_ != donor.keeps_ || !ran) return false;
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
  for (auto part : {&SequenceState::kept_, &SequenceState::queries_, &SequenceState::inputs_,
                    &SequenceState::identifiers_}) {
    for (size_t layer = 0; layer < (this->*part).size(); ++layer) {
      CopyRows((donor.*part)[layer], num_rows, num_rows_, (this->*part)[layer]);
    }
  }
  std::copy_n(donor.tokens_.begin(), num_rows, tokens_.begin());
  return true;
}

size_t SequenceState::cache_bytes() const {
  size_t bytes = policy_->bytes();
  for (const KvCache& kv : kv_) bytes += kv.bytes();
  for (const auto* part : {&kept_, &queries_, &inputs_, &identifiers_}) {
    for (const Mat<float>& matrix : *part) bytes += matrix.bytes();
  }
  return bytes;
}

size_t SequenceState::BytesFor(const ModelConfig& config, size_t num_rows, KvType kv_type,
                               const CachePolicy& policy) {
  const Keeps keeps = policy.keeps();
  const size_t layers = config.num_layers;
  const size_t kv_layers = keeps.kv ? layers : 1;
  size_t kept_layers = keeps.reuse == Reuse::kNothing ? 0 : layers;
  if (kept_layers > 0 && !keeps.reuse_in_last_layer) --kept_layers;
  const size_t query_layers = std::min(keeps.query_layers, layers);
  const size_t input_layers = keeps.inputs ? layers : 0;
  const size_t floats =
      (kept_layers + input_layers) * config.model_dim + query_layers * config.q_dim();
  return kv_layers * KvCache::BytesFor(num_rows, config.num_kv_heads, config.head_dim, kv_type) +
         num_rows * floats * sizeof(float) + policy.BytesFor(config, num_rows);
}

}  // namespace spa
