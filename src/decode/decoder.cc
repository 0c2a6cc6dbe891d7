#include "decode/decoder.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "decode/commit_rule.h"
#include "decode/schedule.h"

namespace spa {

Decoder::Decoder(std::vector<TokenId> prompt, const DecodeOptions& options,
                 const DecodeVocabulary& vocabulary, size_t shift)
    : options_(options),
      vocabulary_(vocabulary),
      shift_(shift),
      prompt_length_(prompt.size()),
      ids_(std::move(prompt)) {
  SPA_CHECK(prompt_length_ > 0);
  ids_.resize(prompt_length_ + options_.gen_length, vocabulary_.mask_id);
  masked_.assign(ids_.size(), 0);
  std::fill(masked_.begin() + static_cast<ptrdiff_t>(prompt_length_), masked_.end(), 1);
  steps_per_block_ = options_.steps / (options_.gen_length / options_.block_length);
  if (options_.schedule == Schedule::kTimeGrid) grid_ = TimeGrid(steps_per_block_, options_.eps);
  block_ = {prompt_length_, prompt_length_ + options_.block_length};
  masks_at_block_start_ = options_.block_length;
  Advance();
}

size_t Decoder::MasksInBlock() const {
  return static_cast<size_t>(
      std::accumulate(masked_.begin() + static_cast<ptrdiff_t>(block_.begin),
                      masked_.begin() + static_cast<ptrdiff_t>(block_.end), 0));
}

size_t Decoder::QuotaOfStep() const {
  if (options_.schedule == Schedule::kEvenSplit) {
    return EvenSplitCount(masks_at_block_start_, steps_per_block_, step_);
  }
  return TimeGridCount(grid_, MasksInBlock(), step_);
}

void Decoder::Advance() {
  const bool parallel = options_.threshold || options_.factor;
  while (!done_) {
    if (MasksInBlock() == 0) {
      if (block_.end == ids_.size()) {
        done_ = true;
        return;
      }
      block_ = {block_.end, block_.end + options_.block_length};
      step_ = block_forwards_ = 0;
      masks_at_block_start_ = MasksInBlock();
      continue;
    }
    // Dream's schedule has steps that settle nothing: their forward pass would change nothing.
    const bool each = options_.order == Order::kRandom && options_.schedule == Schedule::kTimeGrid;
    if (parallel || each || QuotaOfStep() > 0) return;
    ++step_;
  }
}

bool Decoder::KnownAhead() const {
  return options_.order == Order::kRandom && options_.schedule == Schedule::kEvenSplit &&
         options_.order_temperature == 0.0 && options_.eos_rule != EosRule::kConfidence &&
         !options_.threshold && !options_.factor;
}

// Random scores do not look at the logits: only the positions that will be settled want theirs.
void Decoder::KeepNextPositions() {
  std::vector<Candidate> draws(positions_.size());
  for (size_t i = 0; i < draws.size(); ++i) {
    draws[i].score = RandomStream(options_.seed, forwards_, positions_[i]).Uniform(kOrderDraw);
  }
  std::vector<uint32_t> next;
  for (const size_t index : CommitBest(draws, QuotaOfStep())) next.push_back(positions_[index]);
  positions_ = std::move(next);
}

const StepInput& Decoder::Begin() {
  SPA_CHECK(!done_);
  positions_.clear();
  for (size_t pos = block_.begin; pos < block_.end; ++pos) {
    if (masked_[pos]) positions_.push_back(static_cast<uint32_t>(pos));
  }
  if (KnownAhead()) KeepNextPositions();
  candidates_.resize(positions_.size());
  input_ = {.ids = ids_,
            .masked = masked_,
            .prompt_length = prompt_length_,
            .block_begin = block_.begin,
            .block_end = block_.end,
            .step = forwards_,
            .step_in_block = block_forwards_,
            .shift = shift_,
            .visible = RowSet::All(ids_.size()),
            .changed = changed_};
  input_.wanted = input_.RowsOf(positions_);
  return input_;
}

size_t Decoder::IndexOf(uint32_t row) const {
  // The prompt has at least one token, so every position has its own row.
  const auto position = row + static_cast<uint32_t>(shift_);
  return static_cast<size_t>(std::ranges::lower_bound(positions_, position) - positions_.begin());
}

void Decoder::Offer(uint32_t row, std::span<float> logits) {
  const size_t index = IndexOf(row);
  candidates_[index] = SampleToken(logits, options_, vocabulary_,
                                   RandomStream(options_.seed, forwards_, positions_[index]));
}

std::vector<size_t> Decoder::Choose() const {
  // Position draws use a stream of their own: no position has this number.
  const RandomStream random(options_.seed, forwards_, UINT64_MAX);
  if (options_.threshold) return CommitThreshold(candidates_, *options_.threshold);
  if (options_.factor) return CommitFactor(candidates_, *options_.factor);
  if (options_.schedule == Schedule::kTimeGrid && options_.order == Order::kRandom) {
    const double share =
        step_ + 1 >= steps_per_block_ ? 1.0 : 1.0 - grid_[step_ + 1] / grid_[step_];
    return CommitEach(candidates_, share, random);
  }
  if (options_.order_temperature > 0.0) {
    return CommitDrawn(candidates_, QuotaOfStep(), options_.order_temperature, random);
  }
  return CommitBest(candidates_, QuotaOfStep());
}

void Decoder::Commit() {
  std::vector<uint32_t> changed;
  for (const size_t index : Choose()) {
    const uint32_t pos = positions_[index];
    ids_[pos] = candidates_[index].token;
    masked_[pos] = 0;
    changed.push_back(pos);
  }
  changed_ = RowSet(std::move(changed));
  ++forwards_;
  ++block_forwards_;
  ++step_;
  if (options_.early_stop && SettledPrefix().ended) {
    done_ = true;
    const size_t end = prompt_length_ + SettledPrefix().length + 1;
    for (size_t pos = end; pos < ids_.size(); ++pos) {
      if (masked_[pos]) ids_[pos] = vocabulary_.fill_id;
      masked_[pos] = 0;
    }
    return;
  }
  Advance();
}

Decoder::Prefix Decoder::SettledPrefix() const {
  Prefix prefix;
  for (size_t pos = prompt_length_; pos < ids_.size() && !masked_[pos]; ++pos) {
    if (std::ranges::find(vocabulary_.stop_ids, ids_[pos]) != vocabulary_.stop_ids.end()) {
      prefix.ended = true;
      break;
    }
    ++prefix.length;
  }
  return prefix;
}

}  // namespace spa
