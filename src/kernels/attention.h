// Attention of some query rows over every cached key and value of a sequence. Bidirectional: there
// is no mask. A query row's result does not depend on which other queries are computed beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/matrix.h"
#include "base/thread_pool.h"

namespace spa {

enum class KvType { kF32, kF16, kBF16 };

// The keys (after RoPE) and values of one layer of one sequence, laid out for Attend.
class KvCache {
 public:
  KvCache();
  // Every row is to be stored before Attend reads it.
  KvCache(size_t num_rows, size_t num_kv_heads, size_t head_dim, KvType type);
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;
  ~KvCache();

  size_t num_rows() const;
  size_t num_kv_heads() const;
  size_t head_dim() const;
  size_t bytes() const;

  // Row i of k / v becomes the key / value of sequence row rows[i].
  // k, v: [rows.size(), kv_heads*head_dim]
  void StoreKeys(std::span<const uint32_t> rows, MatView<const float> k, ThreadPool& pool);
  void StoreValues(std::span<const uint32_t> rows, MatView<const float> v, ThreadPool& pool);
  // out: [kv_heads*head_dim]
  void LoadKey(size_t row, float* out) const;
  void LoadValue(size_t row, float* out) const;

  struct Store;  // private to kernels/
  const Store& store() const { return *store_; }

 private:
  std::unique_ptr<Store> store_;
};

// One sequence's share of an Attend call. Query head h reads KV head h / (heads / kv_heads).
struct AttentionJob {
  MatView<const float> q;            // [rows, heads*head_dim], after RoPE
  const KvCache* kv = nullptr;       //
  MatView<float> out;                // [rows, heads*head_dim]
  MatView<float> mean_weights = {};  // [rows, kv->num_rows()], attention weights averaged over
                                     // heads; not computed when data is null
};

void Attend(std::span<const AttentionJob> jobs, size_t num_heads, ThreadPool& pool);

}  // namespace spa
