// Everything the transformer remembers of one sequence between steps: the layer caches and the
// policy that rules them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/matrix.h"
#include "kernels/attention.h"
#include "model/config.h"
#include "transformer/cache_policy.h"

namespace spa {

class SequenceState {
 public:
  SequenceState(const ModelConfig& config, size_t num_rows, KvType kv_type,
                std::unique_ptr<CachePolicy> policy);

  size_t num_rows() const { return num_rows_; }
  CachePolicy& policy() { return *policy_; }
  KvCache& kv(size_t layer) { return kv_.size() == 1 ? kv_[0] : kv_[layer]; }
  // Reused update or output of every row.   [num_rows, model_dim]
  Mat<float>& kept(size_t layer) { return kept_[layer]; }
  Mat<float>& x() { return x_; }
  // Queries of the layer that keeps them, after RoPE; empty if none does.   [num_rows, q_dim]
  Mat<float>& queries() { return queries_; }
  size_t cache_bytes() const;

  // Warm start: takes the caches of rows [0, num_rows) from a sequence that begins with the same
  // tokens. In a bidirectional model those states also depend on what follows, so this is an
  // approximation, of the same kind as keeping prompt rows between refreshes. False (and nothing
  // changed) if the policies do not support it.
  bool AdoptPrefix(SequenceState& donor, size_t num_rows, ThreadPool& pool);

  // Rows that ran attention and FFN, summed over steps and layers, and what a dense pass over all
  // rows would have run.
  uint64_t rows_computed = 0;
  uint64_t rows_total = 0;
  uint64_t kv_rows_computed = 0;  // keys and values projected, counted together
  // Rows recomputed per layer in the last step; filled only when `trace` is set.
  bool trace = false;
  std::vector<RowSet> traced_rows;

 private:
  size_t num_rows_;
  std::unique_ptr<CachePolicy> policy_;
  std::vector<KvCache> kv_;
  std::vector<Mat<float>> kept_;
  Mat<float> queries_;
  Mat<float> x_;  // [num_rows, model_dim], the residual stream
};

}  // namespace spa
