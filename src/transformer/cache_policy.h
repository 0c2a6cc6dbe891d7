// The interface of a caching method. There is one transformer step; a policy decides, per layer,
// which rows of a sequence it recomputes and what the other rows do instead. One policy object
// serves one sequence from its first step to its last. It is called from one thread, in the order
// BeginStep, then PlanLayer (and AfterAttention and ChooseRows, if wanted) for every layer, then
// EndStep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/matrix.h"
#include "base/thread_pool.h"
#include "base/token.h"
#include "kernels/attention.h"
#include "kernels/pointwise.h"
#include "model/config.h"
#include "model/weights.h"
#include "transformer/row_set.h"

namespace spa {

// What the decoder tells about a step.
struct StepInput {
  std::span<const TokenId> ids;        // [num_rows], masks included
  std::span<const uint8_t> masked;     // [num_rows], 1 where the token is not settled yet
  size_t prompt_length = 0;            // rows [0, prompt_length) are the prompt
  size_t block_begin = 0;              // the block being decoded
  size_t block_end = 0;
  size_t step = 0;                     // counted over the whole generation
  size_t step_in_block = 0;
  std::span<const uint32_t> committed; // positions settled by the previous step
  RowSet wanted;                       // rows whose logits the decoder will read

  size_t num_rows() const { return ids.size(); }
};

// What a layer does with one sequence.
struct LayerPlan {
  RowSet k_rows, v_rows;  // whose keys / values are projected and stored
  RowSet out_rows;        // who runs attention and FFN
  RowSet live;            // who goes on to the next layer, out_rows included; a live row outside
                          // out_rows reuses what Reuse says
  bool attention_first = false;  // all out_rows run attention; ChooseRows then says who goes on
  // Whose queries are projected, if not those of all out_rows (a range then): the others use the
  // queries they had. For one layer of a model.
  std::optional<RowSet> new_queries = {};
};

// What a live row that is not recomputed gives to the next layer.
enum class Reuse {
  kNothing,  // there are no such rows
  kDelta,    // its input plus the cached update (attention + FFN) of its last recomputation
  kOutput,   // the cached output of its last recomputation
};

// A layer as a policy sees it while planning, with the projections it may want to look at.
class LayerView {
 public:
  virtual ~LayerView() = default;

  size_t layer = 0;
  const StepInput* step = nullptr;
  const RowSet* live = nullptr;     // rows that reached this layer
  MatView<float> x;                 // [num_rows, model_dim]; rows outside `live` hold nothing
  const ModelConfig* config = nullptr;
  const LayerWeights* weights = nullptr;
  const KvCache* kv = nullptr;      // as the previous step left it
  ThreadPool* pool = nullptr;

  // RMS-normed input of the given rows.   [rows, model_dim], valid until the next call
  virtual MatView<const float> Normed(const RowSet& rows) = 0;
  // Value projection of the given rows, bias included.   [rows, kv_dim]. If the plan's v_rows are
  // the same rows, the layer does not project them again.
  virtual MatView<const float> Values(const RowSet& rows) = 0;
};

// Attention of one layer as it has just been computed, before the output projection.
struct AttentionView {
  size_t layer = 0;
  const StepInput* step = nullptr;
  const RowSet* out_rows = nullptr;
  MatView<const float> q;             // [out_rows, q_dim], after RoPE
  MatView<const float> heads;         // [out_rows, q_dim], what attention made of them
  MatView<const float> mean_weights;  // [out_rows, num_rows], averaged over heads, if wanted
  const KvCache* kv = nullptr;
  ThreadPool* pool = nullptr;
};

class CachePolicy {
 public:
  virtual ~CachePolicy() = default;

  virtual Reuse reuse() const { return Reuse::kNothing; }
  // False if every step rewrites every key and value before reading it: one layer's store then
  // serves all layers.
  virtual bool keeps_kv() const { return true; }
  // Whether AfterAttention is called, with mean_weights computed.
  virtual bool wants_attention() const { return false; }

  // Rows that enter the first layer.
  virtual RowSet BeginStep(const StepInput& step) = 0;
  virtual LayerPlan PlanLayer(LayerView& view) = 0;
  virtual void AfterAttention(const AttentionView& /*view*/) {}
  // The rows of a plan with attention_first that run the rest of the layer, among its out_rows.
  virtual RowSet ChooseRows(const AttentionView& view) { return *view.out_rows; }
  // confidence[i] belongs to position positions[i].
  virtual void EndStep(std::span<const uint32_t> /*positions*/,
                       std::span<const float> /*confidence*/) {}

  // Whether AdoptPrefix is written for this method.
  virtual bool can_start_warm() const { return false; }
  // Takes over the donor's state of rows [0, num_rows), whose tokens are the same: the first step
  // may then leave those rows alone. False if it has no use for it.
  // Called before the first step, by SequenceState::AdoptPrefix.
  virtual bool AdoptPrefix(const CachePolicy& /*donor*/, size_t /*num_rows*/) { return false; }

  // Memory of the policy's own state, beside K, V and what Reuse caches.
  virtual size_t bytes() const { return 0; }
};

// Makes the policy of a new sequence.
using PolicyFactory = std::function<std::unique_ptr<CachePolicy>()>;

}  // namespace spa
