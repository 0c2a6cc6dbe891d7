#include "transformer/transformer.h"

#include <cmath>

#include "base/error.h"
#include "kernels/rows.h"
#include "transformer/layer.h"

namespace spa {
namespace {

// Logits are computed and consumed this many rows at a time: enough for an efficient matmul, and
// 32 MB for LLaDA's vocabulary, where 256 rows would take 130 MB.
constexpr size_t kLogitRows = 64;

}  // namespace

Transformer::Transformer(const ModelConfig& config, const Weights& weights, ThreadPool& pool)
    : config_(config),
      weights_(weights),
      pool_(pool),
      layer_(std::make_unique<LayerStep>(config, ropes_, pool, clock_)) {}

Transformer::~Transformer() = default;

void Transformer::Step(std::span<SequenceStep> batch, const LogitSink& sink) {
  clock_.Enter(Phase::kOther);
  std::vector<RowSet> live(batch.size());
  for (size_t s = 0; s < batch.size(); ++s) {
    SequenceState& state = *batch[s].state;
    StepInput& input = batch[s].input;
    SPA_CHECK(input.num_rows() == state.num_rows());
    GrowRopes(state.num_rows());
    state.Describe(input);
    live[s] = state.policy().BeginStep(input);
    live[s] = live[s].Union(input.never_computed).Union(input.wanted);
    state.Enter(live[s], input.ids);
    for (const uint32_t row : live[s]) {
      float* x = state.x().Row(row);
      weights_.Embed(input.ids[row], x);
      if (config_.embedding_scale == 1.0f) continue;
      for (size_t c = 0; c < config_.model_dim; ++c) x[c] *= config_.embedding_scale;
    }
    if (config_.self_conditioning) {
      Condition(batch[s], live[s].Between(input.block_begin, input.block_end));
    }
    if (state.trace) state.traced_rows.assign(config_.num_layers, {});
  }
  for (size_t layer = 0; layer < config_.num_layers; ++layer) {
    layer_->Run(layer, weights_.layers[layer], batch, live);
    if (on_layer_) on_layer_(layer + 1, config_.num_layers);
  }
  for (size_t s = 0; s < batch.size(); ++s) {
    SPA_CHECK(live[s].Includes(batch[s].input.wanted));
    batch[s].input.checked = batch[s].input.checked.Intersect(live[s]);
  }
  Logits(batch, sink);
  clock_.Enter(Phase::kOther);
}

void Transformer::GrowRopes(size_t num_positions) {
  if (num_positions <= ropes_[0].num_positions()) return;
  ropes_[0] = RopeTable(num_positions, config_.rope_dim, config_.rope_theta);
  if (config_.layer_shapes.empty()) return;
  // The pairs of a wide head lie half a head apart; those from wide_rope_dim on are not rotated.
  const size_t dim = config_.wide.head_dim;
  std::vector<double> frequencies(dim / 2, 0.0);
  for (size_t j = 0; j < config_.wide_rope_dim / 2; ++j) {
    frequencies[j] =
        std::pow(config_.wide_rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(dim));
  }
  ropes_[1] = RopeTable(num_positions, frequencies);
}

// x = rms(embedding + FFN(rms(expected)))
void Transformer::Condition(SequenceStep& sequence, const RowSet& rows) {
  const size_t d = config_.model_dim;
  const float epsilon = config_.norm_epsilon;
  Mat<float>& x = sequence.state->x();
  if (sequence.input.expected.rows > 0) {
    std::vector<uint32_t> places;
    for (const uint32_t row : rows) {
      places.push_back(row - static_cast<uint32_t>(sequence.input.block_begin));
    }
    expected_.Resize(rows.size(), d);
    GatherRows(sequence.input.expected, places, expected_.View(), pool_);
    for (size_t i = 0; i < rows.size() * d; ++i) expected_.data()[i] *= config_.embedding_scale;
    const ConditionWeights& weights = weights_.condition;
    RmsNormHeads(expected_.View(), d, weights.norm.data(), epsilon, pool_);
    condition_rows_.Set(expected_.View());
    gate_.Resize(rows.size(), config_.ffn_dim);
    up_.Resize(rows.size(), config_.ffn_dim);
    MatMul(condition_rows_, weights.wgate, gate_.View(), pool_);
    MatMul(condition_rows_, weights.wup, up_.View(), pool_);
    Gate(config_.activation, gate_.View(), up_.View(), pool_);
    condition_rows_.Set(gate_.View());
    condition_.Resize(rows.size(), d);
    MatMul(condition_rows_, weights.wdown, condition_.View(), pool_);
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t c = 0; c < d; ++c) x.Row(rows[i])[c] += condition_.Row(i)[c];
    }
  }
  for (const uint32_t row : rows) {
    RmsNormHeads({x.Row(row), 1, d, d}, d, nullptr, epsilon, pool_);
  }
}

size_t Transformer::WorkspaceBytes(const ModelConfig& config, size_t num_rows) {
  const size_t d = config.model_dim, q = config.max_q_dim(), kv = config.max_kv_dim();
  // Rows of LayerStep, the residual stream, the final rows, what a policy looks at; int8 copies of
  // some of them; the RoPE table.
  const size_t row_floats = 13 * d + 4 * q + 3 * kv + config.head_dim;
  // The widest matrices are computed a few rows at a time.
  const size_t parts = LayerStep::kFfnRows * 3 * config.ffn_dim + kLogitRows * config.vocab_rows;
  const size_t experts =
      config.experts.count > 0 ? ExpertStep::WorkspaceBytes(config.experts, d, num_rows) : 0;
  // A dense network beside the experts: two matrices more.
  const size_t beside = config.experts.beside_dense ? 2 * num_rows * d : 0;
  return (num_rows * row_floats + parts + beside) * sizeof(float) + experts;
}

void Transformer::ReleaseWorkspace() {
  layer_ = std::make_unique<LayerStep>(config_, ropes_, pool_, clock_);
  final_ = Mat<float>();
  logits_ = Mat<float>();
  final_rows_ = Activations();
}

void Transformer::Logits(std::span<const SequenceStep> batch, const LogitSink& sink) {
  clock_.Enter(Phase::kHead);
  struct Read {
    size_t sequence;
    uint32_t row;
  };
  std::vector<Read> reads;
  std::vector<RowSet> rows_of(batch.size());
  for (size_t s = 0; s < batch.size(); ++s) {
    rows_of[s] = batch[s].input.reads();
    for (const uint32_t row : rows_of[s]) reads.push_back({s, row});
  }
  final_.Resize(reads.size(), config_.model_dim);
  for (size_t s = 0, first = 0; s < batch.size(); ++s) {
    const RowSet& rows = rows_of[s];
    RmsNorm(batch[s].state->x().View(), rows, weights_.final_norm.data(), config_.norm_epsilon,
            final_.View().Rows(first, rows.size()), pool_);
    first += rows.size();
  }
  logits_.Resize(std::min(kLogitRows, reads.size()), config_.vocab_rows);
  for (size_t first = 0; first < reads.size(); first += kLogitRows) {
    const size_t count = std::min(kLogitRows, reads.size() - first);
    clock_.Enter(Phase::kHead);
    final_rows_.Set(final_.View().Rows(first, count));
    MatMul(final_rows_, weights_.head, logits_.View().Rows(0, count), pool_);
    clock_.Enter(Phase::kSampling);
    pool_.ParallelFor(count, [&](size_t i) {
      if (config_.logit_cap > 0.0f) {
        for (size_t id = 0; id < config_.vocab_rows; ++id) {
          float& logit = logits_.Row(i)[id];
          logit = config_.logit_cap * std::tanh(logit / config_.logit_cap);
        }
      }
      sink(reads[first + i].sequence, reads[first + i].row, {logits_.Row(i), config_.vocab_rows});
    });
  }
}

}  // namespace spa
