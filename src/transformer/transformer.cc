#include "transformer/transformer.h"

#include "base/error.h"
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
      layer_(std::make_unique<LayerStep>(config, rope_, pool, clock_)) {}

Transformer::~Transformer() = default;

void Transformer::Step(std::span<SequenceStep> batch, const LogitSink& sink) {
  clock_.Enter(Phase::kOther);
  std::vector<RowSet> live(batch.size());
  for (size_t s = 0; s < batch.size(); ++s) {
    SequenceState& state = *batch[s].state;
    StepInput& input = batch[s].input;
    SPA_CHECK(input.num_rows() == state.num_rows());
    if (state.num_rows() > rope_.num_positions()) {
      rope_ = RopeTable(state.num_rows(), config_.rope_dim, config_.rope_theta);
    }
    state.Describe(input);
    live[s] = state.policy().BeginStep(input);
    live[s] = live[s].Union(input.never_computed).Union(input.wanted);
    state.Enter(live[s], input.ids);
    for (const uint32_t row : live[s]) weights_.Embed(input.ids[row], state.x().Row(row));
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

size_t Transformer::WorkspaceBytes(const ModelConfig& config, size_t num_rows) {
  const size_t d = config.model_dim, q = config.q_dim(), kv = config.kv_dim();
  // Rows of LayerStep, the residual stream, the final rows, what a policy looks at; int8 copies of
  // some of them; the RoPE table.
  const size_t row_floats = 13 * d + 3 * q + 3 * kv + config.head_dim;
  // The widest matrices are made some rows at a time.
  const size_t parts = LayerStep::kFfnRows * 3 * config.ffn_dim + kLogitRows * config.vocab_rows;
  return (num_rows * row_floats + parts) * sizeof(float);
}

void Transformer::ReleaseWorkspace() {
  layer_ = std::make_unique<LayerStep>(config_, rope_, pool_, clock_);
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
      sink(reads[first + i].sequence, reads[first + i].row, {logits_.Row(i), config_.vocab_rows});
    });
  }
}

}  // namespace spa
