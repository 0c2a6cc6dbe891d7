#include "decode/generation.h"

#include <algorithm>

namespace spa {

Generation::Generation(const ModelConfig& config, std::vector<TokenId> prompt,
                       const DecodeOptions& options, const DecodeVocabulary& vocabulary,
                       KvType kv_type, const PolicyFactory& policy, std::vector<TokenId> suffix,
                       GivenCanvas canvas)
    : decoder_(std::move(prompt), options, vocabulary, config.logit_shift ? 1 : 0,
               std::move(suffix), std::move(canvas)),
      num_layers_(config.num_layers) {
  AttentionPattern attention;  // full
  if (options.block_attention) {
    attention = {AttentionKind::kBlocks, options.block_length,
                 options.blocks_from_start ? BlockOrigin::kStart : BlockOrigin::kPromptEnd};
  }
  if (config.attention.kind == AttentionKind::kCausal) attention.kind = AttentionKind::kCausal;
  if (config.self_conditioning) expected_.Resize(options.block_length, config.model_dim);
  const size_t num_states = options.cfg_scale > 0.0 ? 2 : 1;
  const size_t prompt_rows =
      std::min(SequenceState::PromptRows(config, decoder_.prompt_length()), decoder_.block().begin);
  for (size_t i = 0; i < num_states; ++i) {
    states_.push_back(std::make_unique<SequenceState>(config, decoder_.num_rows(), prompt_rows,
                                                      kv_type, policy()));
    states_.back()->set_attention(attention);
  }
  if (num_states == 2) {
    unconditional_ids_.assign(decoder_.ids().begin(), decoder_.ids().end());
    std::fill_n(unconditional_ids_.begin(), decoder_.prompt_length(), vocabulary.mask_id);
  }
}

GenerationStats Generation::Stats() const {
  GenerationStats stats = times_;
  const Decoder::Prefix prefix = decoder_.SettledPrefix();
  stats.prompt_tokens = decoder_.prompt_length();
  stats.canvas_tokens = decoder_.canvas().size();
  stats.generated_tokens = prefix.length;
  stats.ended = prefix.ended;
  if (decoder_.infills()) {
    stats.generated_tokens = 0;
    for (const BlockRange& gap : decoder_.gaps()) {
      for (size_t pos = gap.begin; pos < gap.end; ++pos) {
        stats.generated_tokens += decoder_.masked()[pos] == 0 ? 1 : 0;
      }
    }
    stats.ended = decoder_.done();  // nothing is left to fill
  }
  stats.steps = decoder_.steps();
  stats.rows_computed = rows_computed();
  stats.rows_total = rows_total();
  stats.settled_tokens = decoder_.settled();
  stats.later_rows = static_cast<double>(stats.rows_computed - first_step_rows_) /
                     static_cast<double>(num_layers_);
  stats.cache_bytes = cache_bytes();
  stats.seed = decoder_.options().seed;
  return stats;
}

size_t Generation::cache_bytes() const {
  size_t bytes = 0;
  for (const auto& state : states_) bytes += state->cache_bytes();
  return bytes;
}

uint64_t Generation::rows_computed() const {
  uint64_t rows = 0;
  for (const auto& state : states_) rows += state->rows_computed;
  return rows;
}

uint64_t Generation::rows_total() const {
  uint64_t rows = 0;
  for (const auto& state : states_) rows += state->rows_total;
  return rows;
}

void Generation::AppendSteps(std::vector<SequenceStep>& batch) {
  // Shadow rows, guidance and noise do not support reading other positions.
  const DecodeOptions& options = decoder_.options();
  const bool watch =
      states_[0]->keeps().confidence && states_.size() == 1 && !options.wino && !options.noise;
  const StepInput& input = decoder_.Begin(watch);
  batch.push_back({states_[0].get(), input});
  if (expected_.rows() > 0 && input.step_in_block > 0) {
    batch.back().input.expected = expected_.View();
  }
  if (states_.size() == 2) {
    std::copy(decoder_.ids().begin() + static_cast<ptrdiff_t>(decoder_.prompt_length()),
              decoder_.ids().end(),
              unconditional_ids_.begin() + static_cast<ptrdiff_t>(decoder_.prompt_length()));
    batch.push_back({states_[1].get(), input});
    batch.back().input.ids = unconditional_ids_;
  }
}

void Generation::Offer(size_t state, uint32_t row, std::span<float> logits,
                       const Weights& weights) {
  if (states_.size() == 1) {
    decoder_.Offer(row, logits);  // leaves them divided by the temperature
    if (expected_.rows() > 0) {
      weights.EmbedMean(logits, expected_.Row(row - decoder_.input().block_begin));
    }
  } else {
    std::ranges::copy(logits, guided_[state].Row(decoder_.IndexOf(row)));
  }
}

void Generation::Finish(ThreadPool& pool) {
  if (states_.size() == 2) {
    const auto scale = static_cast<float>(decoder_.options().cfg_scale + 1.0);
    const StepInput& input = decoder_.input();
    pool.ParallelFor(decoder_.positions().size(), [&](size_t index) {
      float* conditional = guided_[0].Row(index);
      const float* unconditional = guided_[1].Row(index);
      for (size_t id = 0; id < guided_[0].cols(); ++id) {
        conditional[id] = unconditional[id] + scale * (conditional[id] - unconditional[id]);
      }
      decoder_.Offer(input.RowOf(decoder_.positions()[index]), {conditional, guided_[0].cols()});
    });
  }
  decoder_.Commit();
  if (decoder_.steps() == 1) first_step_rows_ = rows_computed();
  std::vector<uint32_t> positions(decoder_.positions().begin(), decoder_.positions().end());
  std::vector<float> confidence;
  for (const Candidate& candidate : decoder_.candidates()) {
    confidence.push_back(static_cast<float>(candidate.probability));
  }
  for (size_t i = 0; i < decoder_.watched().size(); ++i) {
    const std::optional<Candidate>& candidate = decoder_.watched_candidates()[i];
    if (!candidate) continue;
    positions.push_back(decoder_.watched()[i]);
    confidence.push_back(static_cast<float>(candidate->probability));
  }
  for (const auto& state : states_) {
    state->policy().EndStep(positions, confidence);
    // If a gap changed its length, the rows after it have moved.
    const size_t size = decoder_.ids().size();
    if (decoder_.moved_from() < size) state->Forget(RowSet::Range(decoder_.moved_from(), size));
  }
}

void StepTogether(Transformer& transformer, std::span<Generation* const> generations) {
  std::vector<SequenceStep> batch;
  struct Owner {
    Generation* generation;
    size_t state;
  };
  std::vector<Owner> owners;
  for (Generation* generation : generations) {
    generation->AppendSteps(batch);
    for (size_t state = 0; state < generation->num_states(); ++state) {
      owners.push_back({generation, state});
      if (generation->num_states() == 2) {
        generation->guided_[state].Resize(generation->decoder_.positions().size(),
                                          transformer.config().vocab_rows);
      }
    }
  }
  transformer.Step(batch, [&](size_t sequence, uint32_t row, std::span<float> logits) {
    owners[sequence].generation->Offer(owners[sequence].state, row, logits, transformer.weights());
  });
  transformer.clock().Enter(Phase::kSampling);
  for (Generation* generation : generations) generation->Finish(transformer.pool());
  transformer.clock().Enter(Phase::kOther);
}

}  // namespace spa
