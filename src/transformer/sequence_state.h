// Everything the transformer remembers about one sequence between steps: what its policy asked to
// keep (Keeps), layer by layer, and the policy itself.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/matrix.h"
#include "kernels/attention.h"
#include "kernels/kept_rows.h"
#include "model/config.h"
#include "transformer/cache_policy.h"

namespace spa {

class SequenceState {
 public:
  // `num_rows` is the largest size the sequence may grow to; rows take memory once they are
  // visible. `prompt_rows` of them predict no position of the canvas.
  SequenceState(const ModelConfig& config, size_t num_rows, size_t prompt_rows, KvType kv_type,
                std::unique_ptr<CachePolicy> policy);

  // Rows of a prompt that predict no position after it.
  static size_t PromptRows(const ModelConfig& config, size_t prompt_length) {
    return config.logit_shift && prompt_length > 0 ? prompt_length - 1 : prompt_length;
  }

  size_t num_rows() const { return num_rows_; }
  CachePolicy& policy() { return *policy_; }
  // Which rows see which: the model's pattern, unless another one is set before the first step.
  const AttentionPattern& attention() const { return attention_; }
  void set_attention(const AttentionPattern& attention) { attention_ = attention; }
  const Keeps& keeps() const { return keeps_; }
  KvCache& kv(size_t layer) { return kv_.size() > 1 ? kv_[layer] : kv_[0]; }
  // Whether unplanned rows of a layer reuse something.
  bool reuses(size_t layer) const {
    return keeps_.reuse != Reuse::kNothing &&
           (keeps_.reuse_in_last_layer || layer + 1 < num_layers_);
  }
  // The first row that may reuse something; of the rows before it only keys and values are kept.
  size_t first_reusing() const { return first_reusing_; }
  bool keeps_queries(size_t layer) const { return layer < keeps_.query_layers; }
  // Kept updates or outputs.
  KeptRows& kept(size_t layer) { return kept_[layer]; }
  // Kept queries, after RoPE.
  KeptRows& queries(size_t layer) { return queries_[layer]; }
  // Kept inputs.   [num_rows, model_dim]
  Mat<float>& inputs(size_t layer) { return inputs_[layer]; }
  // The policy's own rows.
  KeptRows& identifiers(size_t layer) { return identifiers_[layer]; }
  Mat<float>& x() { return x_; }
  size_t cache_bytes() const;
  // An upper bound of cache_bytes() for a sequence of `num_rows`, known before it begins.
  static size_t BytesFor(const ModelConfig& config, size_t num_rows, size_t prompt_rows,
                         KvType kv_type, const CachePolicy& policy);

  // Fills in never_computed and new_tokens, and remembers which rows are hidden.
  void Describe(StepInput& input);
  // 1 where a row is hidden in the current step; empty if none is.   [num_rows]
  std::span<const uint8_t> hidden() const { return hidden_; }
  // Records that these rows enter a step with these tokens.
  void Enter(const RowSet& rows, std::span<const TokenId> ids);
  // Forgets that rows were computed, as when tokens are inserted before them.
  void Forget(const RowSet& rows);

  bool HasRun(size_t num_rows) const;  // each of the rows [0, num_rows)
  // Warm start: copies what is kept of rows [0, num_rows) from a sequence that begins with the same
  // tokens and has the same policy and options. In a bidirectional model those states also depend
  // on what follows, so this is an approximation, like keeping prompt rows between refreshes.
  // Returns false and changes nothing if the policy does not allow it or a row of the donor never
  // ran.
  bool AdoptPrefix(SequenceState& donor, size_t num_rows, ThreadPool& pool);
  // The token each row last ran with; -1: it never ran.
  std::span<const TokenId> tokens() const { return tokens_; }
  // Keeps rows [0, num_rows) for AdoptPrefix and gives the memory of everything else back.
  void Shrink(size_t num_rows, ThreadPool& pool);

  // Rows that ran attention and FFN, summed over steps and layers, and what a dense pass over all
  // rows would have run.
  uint64_t rows_computed = 0;
  uint64_t rows_total = 0;
  uint64_t kv_rows_computed = 0;  // keys and values projected, counted together
  uint64_t q_rows_computed = 0;   // queries projected
  uint64_t rows_attended = 0;     // queries of attention, recomputed rows or not
  // Rows recomputed per layer in the last step; filled only when `trace` is set.
  bool trace = false;
  std::vector<RowSet> traced_rows;

 private:
  size_t num_rows_, num_layers_;
  AttentionPattern attention_;
  std::unique_ptr<CachePolicy> policy_;
  Keeps keeps_;
  size_t first_reusing_;
  std::vector<KvCache> kv_;
  std::vector<KeptRows> kept_, queries_, identifiers_;  // per layer that has them
  std::vector<Mat<float>> inputs_;
  std::vector<TokenId> tokens_;  // per row: the token it last ran with
  std::vector<uint8_t> hidden_;
  Mat<float> x_;  // [num_rows, model_dim], the residual stream
};

}  // namespace spa
