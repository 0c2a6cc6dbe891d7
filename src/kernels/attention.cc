#include "kernels/attention.h"

#include <algorithm>

#include "kernels/reference.h"

namespace spa {

struct KvCache::Store {
  Mat<float> k, v;
  size_t num_kv_heads = 0;
  size_t head_dim = 0;
};

KvCache::KvCache() : store_(std::make_unique<Store>()) {}
KvCache::KvCache(size_t num_rows, size_t num_kv_heads, size_t head_dim, KvType) : KvCache() {
  store_->num_kv_heads = num_kv_heads;
  store_->head_dim = head_dim;
  store_->k.Resize(num_rows, num_kv_heads * head_dim);
  store_->v.Resize(num_rows, num_kv_heads * head_dim);
  store_->k.Fill(0.0f);
  store_->v.Fill(0.0f);
}
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;
KvCache::~KvCache() = default;

size_t KvCache::num_rows() const { return store_->k.rows(); }
size_t KvCache::num_kv_heads() const { return store_->num_kv_heads; }
size_t KvCache::head_dim() const { return store_->head_dim; }
size_t KvCache::bytes() const { return store_->k.bytes() + store_->v.bytes(); }

void KvCache::StoreKeys(std::span<const uint32_t> rows, MatView<const float> k, ThreadPool&) {
  for (size_t i = 0; i < rows.size(); ++i) std::copy_n(k.Row(i), k.cols, store_->k.Row(rows[i]));
}
void KvCache::StoreValues(std::span<const uint32_t> rows, MatView<const float> v, ThreadPool&) {
  for (size_t i = 0; i < rows.size(); ++i) std::copy_n(v.Row(i), v.cols, store_->v.Row(rows[i]));
}
void KvCache::LoadKey(size_t row, float* out) const {
  std::copy_n(store_->k.Row(row), store_->k.cols(), out);
}
void KvCache::LoadValue(size_t row, float* out) const {
  std::copy_n(store_->v.Row(row), store_->v.cols(), out);
}

void Attend(std::span<const AttentionJob> jobs, size_t num_heads, ThreadPool& pool) {
  for (const AttentionJob& job : jobs) {
    const KvCache::Store& store = job.kv->store();
    pool.ParallelFor(job.q.rows, [&](size_t i) {
      MatView<float> mean = job.mean_weights;
      if (mean.data) mean = mean.Rows(i, 1);
      reference::Attend(job.q.Rows(i, 1), store.k.View(), store.v.View(), num_heads,
                        store.head_dim, job.out.Rows(i, 1), mean);
    });
  }
}

}  // namespace spa
