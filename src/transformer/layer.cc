#include "transformer/layer.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "kernels/parallel_rows.h"
#include "kernels/rows.h"
#include "transformer/sequence_state.h"
#include "transformer/transformer.h"

namespace spa {
namespace {

const RowSet& QueryRows(const LayerPlan& plan) {
  return plan.q_rows ? *plan.q_rows : plan.out_rows;
}

void Include(RowSet& rows, const RowSet& more) {
  if (!rows.Includes(more)) rows = rows.Union(more);
}

// For each row the first key it sees and one past the last; empty: all.
struct KeyRanges {
  std::vector<uint32_t> begin, end;
};

KeyRanges KeysOf(const SequenceState& state, const StepInput& input, const RowSet& rows,
                 size_t window) {
  KeyRanges keys;
  const AttentionPattern& attention = state.attention();
  if (attention.kind == AttentionKind::kFull) return keys;
  for (const uint32_t row : rows) {
    size_t end = row + 1;
    if (attention.kind == AttentionKind::kBlocks) {
      end = attention.BlockEnd(row, input.prompt_length);
    } else if (input.IsDecoded(row)) {
      end = input.block_end;
    }
    keys.end.push_back(static_cast<uint32_t>(std::min(end, state.num_rows())));
    if (window == 0) continue;
    // Inside the block being decoded there is no window.
    const size_t last = attention.kind == AttentionKind::kCausal && input.IsDecoded(row)
                            ? input.block_begin
                            : size_t{row};
    keys.begin.push_back(static_cast<uint32_t>(last + 1 - std::min(last + 1, window)));
  }
  return keys;
}

// The job of a sequence, cut up if it has shadow rows: one job for the rows that no shadow hides
// anything from, and one for each shadow. `hidden` holds what their rows do not see.
std::vector<AttentionJob> JobsOf(const AttentionJob& job, const StepInput& input,
                                 const RowSet& rows, std::vector<std::vector<uint8_t>>& hidden) {
  if (!input.shadow_begin) return {job};
  const size_t shadow_begin = *input.shadow_begin, num_rows = job.kv->num_rows();
  const size_t ordinary = rows.Between(0, shadow_begin).size();
  const auto cut = [&](size_t first, size_t count, size_t hidden_begin, size_t hidden_end) {
    std::vector<uint8_t>& rows_hidden = hidden.emplace_back(job.hidden.begin(), job.hidden.end());
    rows_hidden.resize(num_rows, 0);
    std::fill(rows_hidden.begin() + static_cast<ptrdiff_t>(hidden_begin),
              rows_hidden.begin() + static_cast<ptrdiff_t>(hidden_end), 1);
    AttentionJob part = job;
    part.q = job.q.Rows(first, count);
    part.out = job.out.Rows(first, count);
    part.log_sums = {};
    if (job.mean_weights.data != nullptr) part.mean_weights = job.mean_weights.Rows(first, count);
    part.hidden = rows_hidden;
    return part;
  };
  std::vector<AttentionJob> jobs;
  if (ordinary > 0) jobs.push_back(cut(0, ordinary, shadow_begin, num_rows));
  for (size_t i = ordinary; i < rows.size(); ++i) {
    const size_t own = input.PlaceOf(rows[i]);
    jobs.push_back(cut(i, 1, own, own + 1));
  }
  return jobs;
}

// The rows whose logits are read: all wanted ones, and the checked ones that are `there`.
RowSet Reads(const StepInput& input, const RowSet& there) {
  if (input.checked.empty()) return input.wanted;
  return input.wanted.Union(input.checked.Intersect(there));
}

}  // namespace

// What a policy may look at while it plans one sequence.
class LayerStep::View : public LayerView {
 public:
  View(LayerStep& owner, size_t sequence) : owner_(owner), sequence_(sequence) {}

  MatView<const float> Normed(const RowSet& rows) override {
    owner_.view_normed_.Resize(rows.size(), x.cols);
    RmsNorm(x, rows, weights->attn_norm.data(), config->norm_epsilon, owner_.view_normed_.View(),
            *pool);
    return owner_.view_normed_.View();
  }

  MatView<const float> Values(const RowSet& rows) override {
    Mat<float>& values = owner_.valued_[sequence_];
    values.Resize(rows.size(), config->kv_dim());
    owner_.view_rows_.Set(Normed(rows));
    MatMul(owner_.view_rows_, weights->wv, values.View(), *pool,
           weights->bv.empty() ? nullptr : weights->bv.data());
    owner_.valued_rows_[sequence_] = rows;
    return values.View();
  }

 private:
  LayerStep& owner_;
  size_t sequence_;
};

bool LayerStep::Stack::operator==(const Stack& other) const {
  if (first != other.first) return false;
  for (size_t s = 0; s < rows.size(); ++s) {
    if (*rows[s] != *other.rows[s]) return false;
  }
  return true;
}

LayerStep::LayerStep(const ModelConfig& config, const std::array<RopeTable, 2>& ropes,
                     ThreadPool& pool, PhaseClock& clock)
    : config_(config), ropes_(ropes), pool_(pool), clock_(clock) {}

void LayerStep::Run(size_t layer, const LayerWeights& weights, std::span<const SequenceStep> batch,
                    std::vector<RowSet>& live) {
  layer_ = layer;
  shape_ = config_.shape(layer);
  weights_ = &weights;
  Plan(batch, live);  // which rows, by each sequence's policy
  NormInputs(batch);
  CopyOldKeys(batch);
  RefreshKeysValues(batch);  // project, rotate, store
  AskBeforeAttention(batch);
  MakeQueries(batch);
  Attend(batch);  // these queries, every key
  FeedForward(batch);
  UpdateRows(batch, live);  // scatter the new rows; the others reuse what they have
}

void LayerStep::Plan(std::span<const SequenceStep> batch, std::vector<RowSet>& live) {
  clock_.Enter(Phase::kIdentify);
  plans_.resize(batch.size());
  in_rows_.resize(batch.size());
  valued_rows_.assign(batch.size(), RowSet());
  valued_.resize(batch.size());
  for (size_t s = 0; s < batch.size(); ++s) {
    SequenceState& state = *batch[s].state;
    View view(*this, s);
    view.layer = layer_;
    view.step = &batch[s].input;
    view.live = &live[s];
    view.x = state.x().View();
    view.config = &config_;
    view.weights = weights_;
    view.kv = &state.kv(layer_);
    if (state.keeps_queries(layer_)) view.kept_q = &state.queries(layer_);
    view.identifiers = &state.identifiers(layer_);
    view.pool = &pool_;
    LayerPlan& plan = plans_[s];
    plan = state.policy().PlanLayer(view);
    CompletePlan(batch[s], live[s], plan);
    const RowSet& q_rows = QueryRows(plan);
    in_rows_[s] = plan.k_rows == q_rows && plan.v_rows == q_rows
                      ? q_rows
                      : plan.k_rows.Union(q_rows).Union(plan.v_rows);
    if (state.keeps().inputs) RestoreInputs(state, live[s], in_rows_[s].Union(plan.out_rows));
    state.kv_rows_computed += plan.k_rows.size() + plan.v_rows.size();
    state.q_rows_computed += q_rows.size();
  }
}

// What holds for every policy (cache_policy.h).
void LayerStep::CompletePlan(const SequenceStep& sequence, const RowSet& live, LayerPlan& plan) {
  const StepInput& input = sequence.input;
  const SequenceState& state = *sequence.state;
  RowSet must = input.never_computed;
  if (state.keeps().reuse == Reuse::kNothing) Include(must, input.wanted);
  const RowSet unkept = plan.live.Between(0, state.first_reusing());
  Include(must, unkept);
  if (IsLastLayer() && !state.reuses(layer_)) Include(must, Reads(input, live));
  if (!must.empty()) {
    for (RowSet* rows : {&plan.k_rows, &plan.v_rows, &plan.out_rows, &plan.live}) {
      Include(*rows, must);
    }
    if (plan.q_rows) {
      Include(*plan.q_rows, input.never_computed);
      Include(*plan.q_rows, unkept);
    }
  }
  if (IsLastLayer()) {
    const RowSet reads = Reads(input, plan.live);
    // A policy that sees attention weights is cut down there (Attend).
    if (!state.reuses(layer_) && !state.keeps().attention) {
      plan.out_rows = reads;
      plan.q_rows.reset();
      plan.ask_before_attention = plan.ask_after_attention = false;
    }
    plan.live = reads.Union(plan.out_rows);
  }
  SPA_CHECK(plan.live.Includes(plan.out_rows));
  SPA_CHECK(input.visible.Includes(plan.live));
}

// A planned row that did not reach the layer starts from the input it last had there.
void LayerStep::RestoreInputs(SequenceState& state, const RowSet& live, const RowSet& planned) {
  Mat<float>& inputs = state.inputs(layer_);
  for (const uint32_t row : planned.Without(live)) {
    std::copy_n(inputs.Row(row), inputs.cols(), state.x().Row(row));
  }
  for (const uint32_t row : planned) {
    std::copy_n(state.x().Row(row), inputs.cols(), inputs.Row(row));
  }
}

void LayerStep::NormInputs(std::span<const SequenceStep> batch) {
  clock_.Enter(Phase::kAttention);
  in_ = Stack();
  for (const RowSet& rows : in_rows_) in_.Add(rows);
  normed_.Resize(in_.size(), config_.model_dim);
  for (size_t s = 0; s < batch.size(); ++s) {
    RmsNorm(batch[s].state->x().View(), in_rows_[s], weights_->attn_norm.data(),
            config_.norm_epsilon, normed_.View().Rows(in_.first[s], in_rows_[s].size()), pool_);
  }
  normed_rows_.Set(normed_.View());
}

void LayerStep::Project(const Stack& stack, const PackedMatrix& w, const std::vector<float>& bias,
                        Mat<float>& out) {
  out.Resize(stack.size(), w.rows());
  const float* bias_data = bias.empty() ? nullptr : bias.data();
  if (stack == in_) {
    MatMul(normed_rows_, w, out.View(), pool_, bias_data);
    return;
  }
  subset_.Resize(stack.size(), config_.model_dim);
  for (size_t s = 0; s < stack.rows.size(); ++s) {
    GatherRows(normed_.View().Rows(in_.first[s], in_rows_[s].size()),
               in_rows_[s].PlacesOf(*stack.rows[s]),
               subset_.View().Rows(stack.first[s], stack.rows[s]->size()), pool_);
  }
  subset_rows_.Set(subset_.View());
  MatMul(subset_rows_, w, out.View(), pool_, bias_data);
}

void LayerStep::PlaceHeads(std::span<const SequenceStep> batch, const Stack& stack,
                           const std::vector<float>& gain, Mat<float>& rows) {
  if (!gain.empty()) {
    RmsNormHeads(rows.View(), shape_.head_dim, gain.data(), config_.norm_epsilon, pool_);
  }
  const RopeTable& rope = ropes_[config_.is_wide(layer_) ? 1 : 0];
  std::vector<uint32_t> places;
  for (size_t s = 0; s < stack.rows.size(); ++s) {
    places.assign(stack.rows[s]->begin(), stack.rows[s]->end());
    for (uint32_t& row : places) row = batch[s].input.PlaceOf(row);
    Rope(rows.View().Rows(stack.first[s], places.size()), places, shape_.head_dim, rope, pool_);
  }
}

void LayerStep::RefreshKeysValues(std::span<const SequenceStep> batch) {
  Stack k_stack, v_stack;
  // Values that a policy projected while planning are not projected again.
  const RowSet none;
  std::vector<bool> valued(batch.size());
  for (size_t s = 0; s < batch.size(); ++s) {
    valued[s] = !valued_rows_[s].empty() && valued_rows_[s] == plans_[s].v_rows;
    k_stack.Add(plans_[s].k_rows);
    v_stack.Add(valued[s] ? none : plans_[s].v_rows);
  }
  Project(k_stack, weights_->wk, weights_->bk, k_);
  PlaceHeads(batch, k_stack, weights_->k_norm, k_);
  Project(v_stack, shape_.values_are_keys ? weights_->wk : weights_->wv, weights_->bv, v_);
  if (config_.value_norm) {
    RmsNormHeads(v_.View(), shape_.head_dim, nullptr, config_.norm_epsilon, pool_);
  }
  for (size_t s = 0; s < batch.size(); ++s) {
    KvCache& kv = batch[s].state->kv(layer_);
    kv.StoreKeys(plans_[s].k_rows, k_.View().Rows(k_stack.first[s], plans_[s].k_rows.size()),
                 pool_);
    kv.StoreValues(
        plans_[s].v_rows,
        valued[s] ? valued_[s].View() : v_.View().Rows(v_stack.first[s], plans_[s].v_rows.size()),
        pool_);
  }
}

void LayerStep::CopyOldKeys(std::span<const SequenceStep> batch) {
  renewed_.assign(batch.size(), RowSet());
  old_k_.resize(batch.size());
  old_v_.resize(batch.size());
  for (size_t s = 0; s < batch.size(); ++s) {
    const LayerPlan& plan = plans_[s];
    if (!plan.ask_before_attention) continue;
    renewed_[s] = plan.k_rows.Union(plan.v_rows);
    const KvCache& kv = batch[s].state->kv(layer_);
    const size_t cols = kv.num_kv_heads() * kv.head_dim();
    old_k_[s].Resize(renewed_[s].size(), cols);
    old_v_[s].Resize(renewed_[s].size(), cols);
    ParallelRows(pool_, renewed_[s].size(), cols, [&](size_t i) {
      kv.LoadKey(renewed_[s][i], old_k_[s].Row(i));
      kv.LoadValue(renewed_[s][i], old_v_[s].Row(i));
    });
  }
}

void LayerStep::AskBeforeAttention(std::span<const SequenceStep> batch) {
  for (size_t s = 0; s < batch.size(); ++s) {
    LayerPlan& plan = plans_[s];
    if (!plan.ask_before_attention) continue;
    clock_.Enter(Phase::kIdentify);
    SequenceState& state = *batch[s].state;
    const KeysView view{.layer = layer_,
                        .step = &batch[s].input,
                        .config = &config_,
                        .plan = &plan,
                        .rows = &renewed_[s],
                        .old_k = old_k_[s].View(),
                        .old_v = old_v_[s].View(),
                        .kv = &state.kv(layer_),
                        .kept_q = state.keeps_queries(layer_) ? &state.queries(layer_) : nullptr,
                        .pool = &pool_};
    std::optional<RowSet> attend = state.policy().BeforeAttention(view);
    clock_.Enter(Phase::kAttention);
    if (!attend) continue;
    Include(*attend, QueryRows(plan));
    Include(*attend, batch[s].input.never_computed);
    Include(*attend, plan.live.Between(0, state.first_reusing()));
    SPA_CHECK(plan.out_rows.Includes(*attend));
    plan.out_rows = std::move(*attend);
  }
}

void LayerStep::MakeQueries(std::span<const SequenceStep> batch) {
  Stack stack;
  out_ = Stack();
  for (const LayerPlan& plan : plans_) {
    stack.Add(QueryRows(plan));
    out_.Add(plan.out_rows);
  }
  Project(stack, weights_->wq, weights_->bq, q_);
  PlaceHeads(batch, stack, weights_->q_norm, q_);
  queries_.resize(batch.size());
  for (size_t s = 0; s < batch.size(); ++s) {
    const LayerPlan& plan = plans_[s];
    const MatView<float> made = q_.View().Rows(stack.first[s], QueryRows(plan).size());
    queries_[s] = made;
    SequenceState& state = *batch[s].state;
    // In every step, so that it does not matter whether a query was kept.
    ParallelRows(pool_, made.rows, made.cols, [&](size_t i) {
      RoundAsKept(KeptTypeOf(state.kv(layer_).type()), made.Row(i), made.cols);
    });
    if (!state.keeps_queries(layer_)) continue;
    KeptRows& kept = state.queries(layer_);
    kept.Store(QueryRows(plan), made, pool_);
    if (!plan.q_rows) continue;
    const RowSet& rows = plan.out_rows;
    all_q_.Resize(out_.size(), q_.cols());
    const MatView<float> all = all_q_.View().Rows(out_.first[s], rows.size());
    ScatterRows(made, rows.PlacesOf(*plan.q_rows), all, pool_);
    const RowSet others = rows.Without(*plan.q_rows);
    const auto places = rows.PlacesOf(others);
    ParallelRows(pool_, others.size(), all.cols,
                 [&](size_t i) { kept.Load(others[i], all.Row(places[i])); });
    queries_[s] = all;
  }
}

void LayerStep::Attend(std::span<const SequenceStep> batch) {
  heads_.Resize(out_.size(), config_.q_dim(layer_));
  log_sums_.Resize(out_.size(), config_.num_heads);
  std::vector<AttentionJob> jobs;
  std::vector<KeyRanges> keys(batch.size());
  std::vector<std::vector<uint8_t>> hidden;  // where shadow rows differ from the others
  std::vector<std::optional<RowSet>> chosen(batch.size());
  for (size_t s = 0; s < batch.size(); ++s) {
    SequenceState& state = *batch[s].state;
    const size_t count = plans_[s].out_rows.size();
    state.rows_attended += count;
    keys[s] = KeysOf(state, batch[s].input, plans_[s].out_rows, shape_.window);
    AttentionJob job{.q = queries_[s],
                     .kv = &state.kv(layer_),
                     .out = heads_.View().Rows(out_.first[s], count),
                     .key_begin = keys[s].begin,
                     .key_end = keys[s].end,
                     .hidden = state.hidden(),
                     .score_scale = config_.attention_scale};
    if (LogSumsOf(batch, s)) job.log_sums = log_sums_.View().Rows(out_.first[s], count);
    if (!state.keeps().attention) {
      std::ranges::copy(JobsOf(job, batch[s].input, plans_[s].out_rows, hidden),
                        std::back_inserter(jobs));
      continue;
    }
    // One sequence at a time: the weights are large, and used once.
    mean_weights_.Resize(count, state.num_rows());
    job.mean_weights = mean_weights_.View();
    spa::Attend(JobsOf(job, batch[s].input, plans_[s].out_rows, hidden), config_.num_heads, pool_);
    chosen[s] = state.policy().AfterAttention(Attended(batch, s, job.mean_weights));
  }
  spa::Attend(jobs, config_.num_heads, pool_);
  for (size_t s = 0; s < batch.size(); ++s) {
    SequenceState& state = *batch[s].state;
    if (plans_[s].ask_after_attention && !state.keeps().attention) {
      clock_.Enter(Phase::kIdentify);
      chosen[s] = state.policy().AfterAttention(Attended(batch, s, {}));
      clock_.Enter(Phase::kAttention);
    }
    // In the last layer only rows whose logits are read matter, unless something is kept there.
    if (IsLastLayer() && !state.reuses(layer_)) {
      chosen[s] = Reads(batch[s].input, plans_[s].out_rows);
    } else if (chosen[s]) {
      Include(*chosen[s], batch[s].input.never_computed);
      Include(*chosen[s], plans_[s].live.Between(0, state.first_reusing()));
    }
  }
  KeepChosen(batch, chosen);
  attn_.Resize(out_.size(), config_.model_dim);
  heads_rows_.Set(heads_.View().Rows(0, out_.size()));
  MatMul(heads_rows_, weights_->wo, attn_.View(), pool_);
  if (config_.post_norms) {
    RmsNormHeads(attn_.View(), config_.model_dim, weights_->post_attn_norm.data(),
                 config_.norm_epsilon, pool_);
  }
}

AttentionView LayerStep::Attended(std::span<const SequenceStep> batch, size_t s,
                                  MatView<const float> mean_weights) {
  const size_t first = out_.first[s], count = plans_[s].out_rows.size();
  SequenceState& state = *batch[s].state;
  AttentionView view{.layer = layer_,
                     .step = &batch[s].input,
                     .out_rows = &plans_[s].out_rows,
                     .q = queries_[s],
                     .kept_q = nullptr,
                     .num_heads = config_.num_heads,
                     .heads = heads_.View().Rows(first, count),
                     .mean_weights = mean_weights,
                     .log_sums = {},
                     .kv = &state.kv(layer_),
                     .identifiers = &state.identifiers(layer_),
                     .pool = &pool_};
  if (state.keeps_queries(layer_)) view.kept_q = &state.queries(layer_);
  if (LogSumsOf(batch, s)) view.log_sums = log_sums_.View().Rows(first, count);
  return view;
}

// Whether log_sums_ holds those of a sequence: its policy looks, and its rows see the same keys.
bool LayerStep::LogSumsOf(std::span<const SequenceStep> batch, size_t s) const {
  return plans_[s].ask_after_attention && !batch[s].input.shadow_begin &&
         batch[s].state->attention().kind == AttentionKind::kFull;
}

// heads_ and out_ shrink to the rows chosen after attention.
void LayerStep::KeepChosen(std::span<const SequenceStep> batch,
                           std::span<std::optional<RowSet>> chosen) {
  bool fewer = false;
  for (size_t s = 0; s < batch.size(); ++s) {
    fewer |= chosen[s] && chosen[s]->size() < plans_[s].out_rows.size();
  }
  if (!fewer) return;
  Stack stack;
  for (size_t s = 0; s < batch.size(); ++s) {
    RowSet& rows = plans_[s].out_rows;
    RowSet kept = chosen[s] ? std::move(*chosen[s]) : rows;
    size_t to = stack.size();
    for (const uint32_t place : rows.PlacesOf(kept)) {  // to lower places, in order
      const size_t from = out_.first[s] + place;
      if (from != to) std::copy_n(heads_.Row(from), heads_.cols(), heads_.Row(to));
      ++to;
    }
    rows = std::move(kept);
    if (!batch[s].state->reuses(layer_)) plans_[s].live = rows;
    stack.Add(rows);
  }
  out_ = std::move(stack);
}

void LayerStep::FeedForward(std::span<const SequenceStep> batch) {
  clock_.Enter(Phase::kFfn);
  const size_t count = out_.size();
  hidden_.Resize(count, config_.model_dim);
  for (size_t s = 0; s < batch.size(); ++s) {
    GatherRows(batch[s].state->x().View(), plans_[s].out_rows,
               hidden_.View().Rows(out_.first[s], plans_[s].out_rows.size()), pool_);
  }
  AddRows(attn_.View(), hidden_.View(), pool_);
  ffn_normed_.Resize(count, config_.model_dim);
  RmsNorm(hidden_.View(), RowSet::All(count), weights_->ffn_norm.data(), config_.norm_epsilon,
          ffn_normed_.View(), pool_);
  ffn_.Resize(count, config_.model_dim);
  if (config_.has_dense(layer_)) {
    DenseFfn();
    if (config_.has_experts(layer_)) ExpertsBesideDense();
  } else {
    experts_.Run(config_.experts, weights_->experts, ffn_normed_.View(), ffn_.View(), pool_);
  }
  if (config_.post_norms) {
    RmsNormHeads(ffn_.View(), config_.model_dim, weights_->post_ffn_norm.data(),
                 config_.norm_epsilon, pool_);
  }
}

// The experts see the same rows, through norms of their own.
void LayerStep::ExpertsBesideDense() {
  const size_t d = config_.model_dim;
  const RowSet all = RowSet::All(out_.size());
  const float epsilon = config_.norm_epsilon;
  RmsNormHeads(ffn_.View(), d, weights_->post_dense_norm.data(), epsilon, pool_);
  RmsNorm(hidden_.View(), all, weights_->expert_norm.data(), epsilon, ffn_normed_.View(), pool_);
  routed_.Resize(out_.size(), d);
  RmsNorm(hidden_.View(), all, weights_->experts.router_norm.data(), epsilon, routed_.View(),
          pool_);
  beside_.Resize(out_.size(), d);
  experts_.Run(config_.experts, weights_->experts, routed_.View(), ffn_normed_.View(),
               beside_.View(), pool_);
  RmsNormHeads(beside_.View(), d, weights_->post_expert_norm.data(), epsilon, pool_);
  AddRows(beside_.View(), ffn_.View(), pool_);
}

void LayerStep::DenseFfn() {
  const size_t count = out_.size();
  const size_t num_parts = (count + kFfnRows - 1) / kFfnRows;
  for (size_t part = 0; part < num_parts; ++part) {
    const size_t first = part * count / num_parts;
    const size_t rows = (part + 1) * count / num_parts - first;
    ffn_rows_.Set(ffn_normed_.View().Rows(first, rows));
    gate_.Resize(rows, config_.ffn_dim);
    up_.Resize(rows, config_.ffn_dim);
    MatMul(ffn_rows_, weights_->wgate, gate_.View(), pool_);
    MatMul(ffn_rows_, weights_->wup, up_.View(), pool_);
    Gate(config_.activation, gate_.View(), up_.View(), pool_);
    gate_rows_.Set(gate_.View());
    MatMul(gate_rows_, weights_->wdown, ffn_.View().Rows(first, rows), pool_);
  }
}

// Rows of the block being decoded have one factor, those of the text before it another. What a row
// adds to its input is then no update any more: no cache that reuses one runs such a model.
void LayerStep::ScaleOutputs(std::span<const SequenceStep> batch) {
  for (size_t s = 0; s < batch.size(); ++s) {
    const RowSet& rows = plans_[s].out_rows;
    SPA_CHECK(!batch[s].state->reuses(layer_));
    for (size_t i = 0; i < rows.size(); ++i) {
      float* row = hidden_.Row(out_.first[s] + i);
      const float scale =
          batch[s].input.IsDecoded(rows[i]) ? weights_->scale : weights_->encoder_scale;
      for (size_t c = 0; c < hidden_.cols(); ++c) row[c] *= scale;
    }
  }
}

void LayerStep::UpdateRows(std::span<const SequenceStep> batch, std::vector<RowSet>& live) {
  clock_.Enter(Phase::kOther);
  AddRows(ffn_.View(), hidden_.View(), pool_);  // the new output of the recomputed rows
  AddRows(ffn_.View(), attn_.View(), pool_);    // their update
  if (config_.layer_scales) ScaleOutputs(batch);
  for (size_t s = 0; s < batch.size(); ++s) {
    SequenceState& state = *batch[s].state;
    LayerPlan& plan = plans_[s];
    const size_t count = plan.out_rows.size();
    state.rows_computed += count;
    state.rows_total += batch[s].input.visible.size();
    if (state.trace) state.traced_rows[layer_] = plan.out_rows;
    const MatView<float> x = state.x().View();
    const RowSet reusing = plan.live.size() == count ? RowSet() : plan.live.Without(plan.out_rows);
    const MatView<const float> output = hidden_.View().Rows(out_.first[s], count);
    if (!state.reuses(layer_)) {
      SPA_CHECK(reusing.empty());
    } else if (state.keeps().reuse == Reuse::kUpdate) {
      state.kept(layer_).Store(plan.out_rows, attn_.View().Rows(out_.first[s], count), pool_);
      state.kept(layer_).AddTo(reusing, x, pool_);
    } else {
      state.kept(layer_).Store(plan.out_rows, output, pool_);
      state.kept(layer_).CopyTo(reusing, x, pool_);
    }
    ScatterRows(output, plan.out_rows, x, pool_);
    live[s] = std::move(plan.live);
  }
}

}  // namespace spa
