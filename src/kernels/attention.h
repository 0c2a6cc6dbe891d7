// Attention of some query rows over the cached keys and values of a sequence: all of them, or those
// that a query sees. A query row's result depends neither on the other queries computed beside it
// nor on what lies in the rows it does not see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/matrix.h"
#include "base/thread_pool.h"
#include "kernels/kv_type.h"

namespace spa {

// The keys (after RoPE) and values of one layer of one sequence, laid out for Attend.
class KvCache {
 public:
  KvCache();
  // Every row must be stored before a query sees it.
  KvCache(size_t num_rows, size_t num_kv_heads, size_t head_dim, KvType type);
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;
  ~KvCache();

  size_t num_rows() const;
  size_t num_kv_heads() const;
  size_t head_dim() const;
  KvType type() const;
  size_t bytes() const;
  static size_t BytesFor(size_t num_rows, size_t num_kv_heads, size_t head_dim, KvType type);

  // Row i of k / v becomes the key / value of sequence row rows[i].
  // k, v: [rows.size(), kv_heads*head_dim]
  void StoreKeys(std::span<const uint32_t> rows, MatView<const float> k, ThreadPool& pool);
  void StoreValues(std::span<const uint32_t> rows, MatView<const float> v, ThreadPool& pool);
  // Copies rows [0, num_rows) from a store with the same heads and type, bit for bit.
  void CopyRows(const KvCache& from, size_t num_rows, ThreadPool& pool);
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
  MatView<float> log_sums = {};      // [rows, heads], log of the sum of exp(score); likewise

  // Query row i sees the keys [key_begin[i], key_end[i]) that are not hidden. The output of a row
  // that sees none is zero.
  std::span<const uint32_t> key_begin = {};  // [rows]; empty: 0
  std::span<const uint32_t> key_end = {};    // [rows]; empty: kv->num_rows()
  std::span<const uint8_t> hidden = {};      // [kv->num_rows()], 1: no query sees the key; empty:
                                             // none is hidden
  float score_scale = 0.0f;                  // of query times key; 0: 1 / sqrt(head_dim)
};

void Attend(std::span<const AttentionJob> jobs, size_t num_heads, ThreadPool& pool);

}  // namespace spa
