// The interface of a caching method. There is one transformer step; a policy decides, per layer,
// which rows of a sequence are recomputed and what the other rows do instead. One policy object
// serves one sequence from its first step to its last. It is called from one thread, in the order
// BeginStep, then PlanLayer (and BeforeAttention and AfterAttention, if asked for) for every layer,
// then EndStep.
//
// The transformer completes every plan, so policies need not handle these rules:
// - rows that were never computed are planned in every layer;
// - wanted rows are recomputed, unless unplanned rows reuse an update or an output;
// - in the last layer only rows whose logits are read matter;
// - hidden rows (outside StepInput::visible) are neither planned nor attended to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/matrix.h"
#include "base/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/kept_rows.h"
#include "model/config.h"
#include "model/weights.h"
#include "transformer/row_set.h"
#include "transformer/step_input.h"

namespace spa {

// What a live row passes to the next layer if it is not recomputed.
enum class Reuse {
  kNothing,  // there are no such rows
  kUpdate,   // its input plus the update (attention + FFN) of its last recomputation
  kOutput,   // the output of its last recomputation
};

// What SequenceState keeps of a sequence between steps for its policy.
struct Keeps {
  // Keys and values of every layer. False: every step recomputes all of them before reading any, so
  // all layers share one store.
  bool kv = true;
  Reuse reuse = Reuse::kNothing;
  // False: the rows read in the last layer are always recomputed, so nothing is kept there.
  bool reuse_in_last_layer = true;
  // False: of the prompt's rows only keys and values are kept; a live one is recomputed.
  bool reuse_in_prompt = true;
  size_t query_layers = 0;  // the first layers whose queries are kept
  bool inputs = false;      // inputs of every layer: a planned row that did not reach a layer
                            // starts again from the input it last had there
  // Computed, not kept: head-averaged attention weights, passed to AfterAttention.
  bool attention = false;
  // Likewise: EndStep gets every open position whose row was computed, not only the decoder's
  // candidates.
  bool confidence = false;
  // The cache is only correct where a row sees no block after its own.
  bool needs_block_attention = false;
  // Another sequence that begins with the same tokens may start from what is kept of them.
  bool warm_start = false;

  bool operator==(const Keeps&) const = default;
};

// What a layer does with one sequence.
struct LayerPlan {
  RowSet k_rows, v_rows;  // whose keys / values are projected and stored
  RowSet out_rows;        // rows that run attention and FFN
  RowSet live;            // rows that enter the next layer, out_rows included
  // Rows whose queries are projected, if not all out_rows: the others use their kept ones
  // (Keeps::query_layers).
  std::optional<RowSet> q_rows = {};
  bool ask_before_attention = false;  // BeforeAttention says which of the out_rows attend
  bool ask_after_attention = false;   // AfterAttention says which of these run the FFN

  // The same rows for everything.
  static LayerPlan Of(const RowSet& rows) {
    return {.k_rows = rows, .v_rows = rows, .out_rows = rows, .live = rows};
  }
};

// A layer as a policy sees it while planning, with projections on demand.
class LayerView {
 public:
  virtual ~LayerView() = default;

  size_t layer = 0;
  const StepInput* step = nullptr;
  const RowSet* live = nullptr;  // rows that reached this layer
  MatView<const float> x;        // [num_rows, model_dim]; rows outside `live` hold nothing
  const ModelConfig* config = nullptr;
  const LayerWeights* weights = nullptr;
  const KvCache* kv = nullptr;       // as the previous step left it
  const KeptRows* kept_q = nullptr;  // [q_dim] of each row, likewise, if the layer keeps queries
  KeptRows* identifiers = nullptr;   // what the policy itself remembers (IdentifierOf)
  ThreadPool* pool = nullptr;

  // RMS-normed input of the given rows.   [rows, model_dim], valid until the next call
  virtual MatView<const float> Normed(const RowSet& rows) = 0;
  // Value projection of the given rows, bias included.   [rows, kv_dim]. If the plan's v_rows are
  // the same rows, the layer does not project them again.
  virtual MatView<const float> Values(const RowSet& rows) = 0;
};

// Keys and values of one layer, just renewed, before anything attends to them. Rows whose query is
// new attend whatever the policy says.
struct KeysView {
  size_t layer = 0;
  const StepInput* step = nullptr;
  const ModelConfig* config = nullptr;
  const LayerPlan* plan = nullptr;
  const RowSet* rows = nullptr;       // whose key or value was renewed
  MatView<const float> old_k, old_v;  // [rows, kv_dim], as they were kept
  const KvCache* kv = nullptr;        // as they are now
  const KeptRows* kept_q = nullptr;   // as the previous step left them
  ThreadPool* pool = nullptr;
};

// Attention of one layer, just computed, before the output projection.
struct AttentionView {
  size_t layer = 0;
  const StepInput* step = nullptr;
  const RowSet* out_rows = nullptr;
  MatView<const float> q;            // [out_rows, q_dim], after RoPE
  const KeptRows* kept_q = nullptr;  // q included, if the layer keeps queries
  size_t num_heads = 0;
  MatView<const float> heads;         // [out_rows, q_dim], the attention output of each head
  MatView<const float> mean_weights;  // [out_rows, num_rows], mean over heads (Keeps::attention)
  // [out_rows, num_heads], log of the sum of exp(score). Empty where rows do not all see the same
  // keys.
  MatView<const float> log_sums;
  const KvCache* kv = nullptr;
  KeptRows* identifiers = nullptr;  // as in LayerView
  ThreadPool* pool = nullptr;
};

// What a policy remembers of a row in a layer; it is kept and adopted with the rest of the state.
struct IdentifierShape {
  size_t width = 0;
  KeptType type = KeptType::kF32;
};

class CachePolicy {
 public:
  virtual ~CachePolicy() = default;

  // Asked once, when the sequence begins.
  virtual Keeps keeps() const { return {}; }
  virtual IdentifierShape IdentifierOf(const ModelConfig& /*config*/, size_t /*layer*/) const {
    return {};
  }

  // Rows that enter the first layer.
  virtual RowSet BeginStep(const StepInput& step) = 0;
  virtual LayerPlan PlanLayer(LayerView& view) = 0;
  // Called if the plan asks for it. Returns the out_rows that attend; nothing means all.
  virtual std::optional<RowSet> BeforeAttention(const KeysView& /*view*/) { return {}; }
  // Called if the plan or Keeps::attention asks for it. Returns the rows that run the rest of the
  // layer; nothing means all out_rows.
  virtual std::optional<RowSet> AfterAttention(const AttentionView& /*view*/) { return {}; }
  // confidence[i] belongs to position positions[i].
  virtual void EndStep(std::span<const uint32_t> /*positions*/,
                       std::span<const float> /*confidence*/) {}

  // Memory the policy object holds, beside what SequenceState keeps.
  virtual size_t bytes() const { return 0; }
  // An upper bound of that for a sequence of `num_rows`, known beforehand. Of `kept_rows` of them
  // more than keys and values is kept.
  virtual size_t BytesFor(const ModelConfig& /*config*/, size_t /*num_rows*/,
                          size_t /*kept_rows*/) const {
    return 0;
  }
};

// Makes the policy of a new sequence.
using PolicyFactory = std::function<std::unique_ptr<CachePolicy>()>;

}  // namespace spa
