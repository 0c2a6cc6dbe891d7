#include "decode/decoder.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "decode/commit_rule.h"
#include "decode/schedule.h"
#include "kernels/logit_stats.h"

namespace spa {
namespace {

size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

size_t CanvasEnd(size_t prompt_length, const DecodeOptions& options) {
  const size_t end = prompt_length + options.gen_length;
  return options.blocks_from_start ? RoundUp(end, options.block_length) : end;
}

Decoder::Decoder(std::vector<TokenId> prompt, const DecodeOptions& options,
                 const DecodeVocabulary& vocabulary, size_t shift, std::vector<TokenId> suffix,
                 GivenCanvas given)
    : options_(options),
      vocabulary_(vocabulary),
      shift_(shift),
      prompt_length_(prompt.size()),
      ids_(std::move(prompt)) {
  SPA_CHECK(prompt_length_ > 0);
  const size_t block = options_.block_length;
  canvas_end_ = given.ids.empty() ? CanvasEnd(prompt_length_, options_)
                                  : prompt_length_ + options_.gen_length;
  infills_ = !given.ids.empty();
  given.ids.resize(canvas_end_ - prompt_length_,
                   options_.noise ? vocabulary_.fill_id : vocabulary_.mask_id);
  ids_.insert(ids_.end(), given.ids.begin(), given.ids.end());
  ids_.insert(ids_.end(), suffix.begin(), suffix.end());
  masked_.assign(ids_.size(), 0);
  for (size_t pos = prompt_length_; pos < canvas_end_; ++pos) {
    if (infills_ && ids_[pos] != vocabulary_.mask_id) continue;
    masked_[pos] = 1;
    if (gaps_.empty() || gaps_.back().end != pos) gaps_.push_back({pos, pos});
    ++gaps_.back().end;
  }
  for (uint32_t& place : given.spaced) place += static_cast<uint32_t>(prompt_length_);
  spaced_ = RowSet(std::move(given.spaced));
  length_ = most_length_ = ids_.size();
  if (options_.grow) {
    SPA_CHECK(options_.schedule == Schedule::kNone && spaced_.empty());
    most_length_ += *options_.grow;
    expansions_ = MasksIn({prompt_length_, canvas_end_}) + *options_.grow;
    ids_.resize(most_length_, vocabulary_.mask_id);
    masked_.resize(most_length_, 0);
  }
  moved_from_ = ids_.size();
  const size_t num_blocks = (options_.gen_length + block - 1) / block;
  steps_per_block_ = options_.steps_per_block > 0 ? options_.steps_per_block
                                                  : (options_.steps + num_blocks - 1) / num_blocks;
  if (options_.schedule == Schedule::kTimeGrid) grid_ = TimeGrid(steps_per_block_, options_.eps);
  const size_t begin = options_.blocks_from_start ? prompt_length_ / block * block : prompt_length_;
  // A prompt of whole blocks: its last row gives the first token.
  if (options_.seed_blocks && begin == prompt_length_) {
    StartBlock({begin - std::min(begin, block), begin});
    seeding_ = true;
  } else {
    StartBlock({begin, std::min(begin + block, canvas_end_)});
  }
  Advance();
}

void Decoder::StartBlock(BlockRange block) {
  block_ = block;
  step_ = block_forwards_ = post_steps_ = 0;
  edited_ = false;
  masks_at_block_start_ = MasksIn(block_);
  for (size_t pos = block_.begin; options_.noise && pos < block_.end; ++pos) {
    ids_[pos] = Noise(pos);
  }
  likeliest_before_.clear();
  stable_ = 0;
  if (options_.schedule == Schedule::kLinear) {
    counts_ = LinearCounts(masks_at_block_start_, steps_per_block_);
  }
}

size_t Decoder::MasksIn(BlockRange range) const {
  return static_cast<size_t>(std::accumulate(masked_.begin() + static_cast<ptrdiff_t>(range.begin),
                                             masked_.begin() + static_cast<ptrdiff_t>(range.end),
                                             0));
}

BlockRange Decoder::Part() const {
  if (options_.sub_block_length == 0) return block_;
  BlockRange part{block_.begin, block_.begin};
  while (part.end < block_.end) {
    part = {part.end, std::min(part.end + options_.sub_block_length, block_.end)};
    if (MasksIn(part) > 0) break;
  }
  return part;
}

size_t Decoder::QuotaOfStep() const {
  const size_t masks = MasksIn(block_);
  switch (options_.schedule) {
    case Schedule::kEvenSplit:
      return EvenSplitCount(masks_at_block_start_, steps_per_block_, step_);
    case Schedule::kEvenSplitBlock:
      return std::min(masks, EvenSplitCount(options_.block_length, steps_per_block_, step_));
    case Schedule::kLinear:
      return step_ < counts_.size() ? counts_[step_] : masks;
    case Schedule::kTimeGrid:
      return TimeGridCount(grid_, masks, step_);
    case Schedule::kEntropyKept: {
      const size_t kept = EntropyKeptCount(masks_at_block_start_, steps_per_block_, step_);
      return masks - std::min(masks, kept);
    }
    case Schedule::kNone:
      break;
  }
  return 1;
}

bool Decoder::RuleDecides() const {
  return options_.threshold || options_.factor || options_.entropy_bound;
}

bool Decoder::IsStop(TokenId id) const {
  return std::ranges::find(vocabulary_.stop_ids, id) != vocabulary_.stop_ids.end();
}

bool Decoder::HoldsStop(size_t end) const {
  for (size_t pos = prompt_length_; pos < end; ++pos) {
    if (!masked_[pos] && IsStop(ids_[pos])) return true;
  }
  return false;
}

bool Decoder::BlockFinished() const {
  if (MasksIn(block_) > 0) return false;
  if (!options_.edit_threshold || block_.end <= prompt_length_) return true;
  return (post_steps_ > 0 && !edited_) || post_steps_ >= options_.max_post_steps;
}

void Decoder::Advance() {
  while (!done_ && !seeding_) {
    if (BlockFinished()) {
      if (block_.end >= canvas_end_ || (options_.stop == Stop::kBlock && HoldsStop(block_.end))) {
        Finish();
      } else if (options_.seed_blocks) {
        seeding_ = true;
      } else {
        StartBlock({block_.end, std::min(block_.end + options_.block_length, canvas_end_)});
      }
      continue;
    }
    // Dream's schedule has steps that settle nothing: their forward pass would change nothing.
    const bool each = options_.order == Order::kRandom && options_.schedule == Schedule::kTimeGrid;
    if (RuleDecides() || each || QuotaOfStep() > 0) return;
    ++step_;
  }
}

bool Decoder::KnownAhead() const {
  return options_.order == Order::kRandom && options_.schedule == Schedule::kEvenSplit &&
         options_.order_temperature == 0.0 && options_.eos_rule != EosRule::kConfidence &&
         !RuleDecides();
}

// Random scores do not depend on the logits: only the positions to be settled need theirs.
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
  checked_.clear();
  const BlockRange part = seeding_ ? block_ : Part();
  if (seeding_) {
    positions_.push_back(static_cast<uint32_t>(block_.end));
  } else {
    for (size_t pos = part.begin; pos < part.end; ++pos) {
      if (masked_[pos]) positions_.push_back(static_cast<uint32_t>(pos));
    }
    if (KnownAhead()) KeepNextPositions();
    for (size_t pos = std::max(prompt_length_, block_.begin);
         options_.edit_threshold && pos < block_.end; ++pos) {
      if (!masked_[pos]) checked_.push_back(static_cast<uint32_t>(pos));
    }
    if (positions_.empty()) ++post_steps_;
  }
  candidates_.assign(positions_.size(), {});
  if (options_.noise) likeliest_.assign(positions_.size(), 0);
  checked_candidates_.assign(checked_.size(), {});
  input_ = {.ids = ids_,
            .masked = masked_,
            .prompt_length = prompt_length_,
            .block_begin = block_.begin,
            .block_end = block_.end,
            .part_begin = part.begin,
            .part_end = part.end,
            .step = forwards_,
            .step_in_block = block_forwards_,
            .shift = shift_,
            .visible = RowSet::All(options_.block_attention ? block_.end : length_),
            .changed = changed_};
  input_.wanted = input_.RowsOf(positions_);
  input_.checked = input_.RowsOf(checked_);
  return input_;
}

size_t Decoder::IndexOf(uint32_t row) const {
  // The prompt has at least one token, so every position has its own row.
  const auto position = row + static_cast<uint32_t>(shift_);
  return static_cast<size_t>(std::ranges::lower_bound(positions_, position) - positions_.begin());
}

void Decoder::Offer(uint32_t row, std::span<float> logits) {
  const auto position = row + static_cast<uint32_t>(shift_);
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (const TokenId id : vocabulary_.never) logits[static_cast<size_t>(id)] = kNever;
  if (spaced_.Contains(position)) {
    for (size_t id = 0; id < vocabulary_.spaced->size(); ++id) {
      if ((*vocabulary_.spaced)[id] == 0) logits[id] = kNever;
    }
  }
  if (vocabulary_.expand_id >= 0 && !MayExpand()) {
    logits[static_cast<size_t>(vocabulary_.expand_id)] = kNever;
  }
  if (options_.noise) {
    DecodeOptions now = options_;
    now.draw = Draw::kFiltered;
    now.temperature = NoiseTemperature();
    const size_t index = IndexOf(row);
    candidates_[index] =
        SampleToken(logits, now, vocabulary_, RandomStream(options_.seed, forwards_, position));
    likeliest_[index] = static_cast<TokenId>(ComputeLogitStats(logits).argmax);
    return;
  }
  const Candidate candidate =
      SampleToken(logits, options_, vocabulary_, RandomStream(options_.seed, forwards_, position));
  const auto place = std::ranges::lower_bound(positions_, position);
  if (place != positions_.end() && *place == position) {
    candidates_[static_cast<size_t>(place - positions_.begin())] = candidate;
  } else {
    const auto check = std::ranges::lower_bound(checked_, position);
    checked_candidates_[static_cast<size_t>(check - checked_.begin())] = candidate;
  }
}

std::vector<size_t> Decoder::Choose() const {
  // Position draws use their own stream: no position has this number.
  const RandomStream random(options_.seed, forwards_, UINT64_MAX);
  if (seeding_) return {0};
  if (options_.threshold) {
    const size_t at_least = options_.schedule == Schedule::kEvenSplitBlock && !positions_.empty() &&
                                    !options_.edit_threshold
                                ? QuotaOfStep()
                                : std::min<size_t>(1, positions_.size());
    return CommitThreshold(candidates_, *options_.threshold, at_least);
  }
  if (options_.factor) return CommitFactor(candidates_, *options_.factor);
  if (options_.entropy_bound) return CommitEntropyBound(candidates_, *options_.entropy_bound);
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

// The second draw of a position's stream; the first is its token.
TokenId Decoder::Noise(size_t position) const {
  const double draw = RandomStream(options_.seed, forwards_, position).Uniform(1);
  return static_cast<TokenId>(draw * static_cast<double>(vocabulary_.num_tokens));
}

double Decoder::NoiseTemperature() const {
  const double left =
      static_cast<double>(steps_per_block_ - step_) / static_cast<double>(steps_per_block_);
  return options_.temperature + (options_.first_temperature - options_.temperature) * left;
}

void Decoder::CommitNoise() {
  double entropy = 0.0;
  for (const Candidate& candidate : candidates_) {
    entropy += candidate.entropy / static_cast<double>(candidates_.size());
  }
  stable_ = likeliest_ == likeliest_before_ ? stable_ + 1 : 0;
  const bool done = step_ + 1 >= steps_per_block_ ||
                    (stable_ >= options_.stable_steps && entropy < options_.stable_entropy);
  const std::vector<size_t> accepted = CommitLeastEntropy(candidates_, *options_.entropy_bound);
  std::vector<uint32_t> changed;
  for (size_t i = 0; i < positions_.size(); ++i) {
    const uint32_t pos = positions_[i];
    TokenId token = likeliest_[i];
    if (!done) {
      token = std::ranges::binary_search(accepted, i) ? candidates_[i].token : Noise(pos);
    }
    // All of a finished block: its rows are computed once more, as text.
    if (done || token != ids_[pos]) changed.push_back(pos);
    ids_[pos] = token;
    masked_[pos] = done ? 0 : 1;
  }
  changed_ = RowSet(std::move(changed));
  likeliest_before_ = likeliest_;
}

void Decoder::Commit() {
  if (options_.noise) {
    CommitNoise();
    ++forwards_;
    ++block_forwards_;
    ++step_;
    if (options_.stop == Stop::kAnswer && SettledPrefix().ended) return Finish();
    return Advance();
  }
  std::vector<uint32_t> changed;
  for (const size_t index : Choose()) {
    const uint32_t pos = positions_[index];
    ids_[pos] = candidates_[index].token;
    masked_[pos] = 0;
    changed.push_back(pos);
  }
  edited_ = false;
  for (size_t i = 0; i < checked_.size(); ++i) {
    const Candidate& candidate = checked_candidates_[i];
    if (candidate.probability <= *options_.edit_threshold || candidate.token == ids_[checked_[i]]) {
      continue;
    }
    ids_[checked_[i]] = candidate.token;
    changed.push_back(checked_[i]);
    edited_ = true;
  }
  changed_ = RowSet(std::move(changed));
  moved_from_ = ids_.size();
  if (options_.grow) {
    // From the right, so that positions still to be looked at stay where they are.
    const std::vector<uint32_t> written(changed_.begin(), changed_.end());
    for (size_t i = written.size(); i > 0; --i) EditGap(written[i - 1]);
    if (moved_from_ < length_) changed_ = changed_.Union(RowSet::Range(moved_from_, length_));
    changed_ = changed_.Between(0, length_);
  }
  ++forwards_;
  ++block_forwards_;
  ++step_;
  if (seeding_) {
    seeding_ = false;
    StartBlock({block_.end, std::min(block_.end + options_.block_length, canvas_end_)});
  }
  if (options_.stop == Stop::kAnswer && SettledPrefix().ended) return Finish();
  Advance();
}

void Decoder::Finish() {
  done_ = true;
  for (size_t pos = prompt_length_; pos < canvas_end_; ++pos) {
    if (masked_[pos]) ids_[pos] = vocabulary_.fill_id;
    masked_[pos] = 0;
  }
}

Decoder::Prefix Decoder::SettledPrefix() const {
  // Tokens of a block that is still edited may change.
  const size_t end = options_.edit_threshold && !done_ && !BlockFinished()
                         ? std::max(prompt_length_, block_.begin)
                         : canvas_end_;
  Prefix prefix;
  for (size_t pos = prompt_length_; pos < end && !masked_[pos]; ++pos) {
    if (!infills_ && IsStop(ids_[pos])) {
      prefix.ended = true;
      break;
    }
    ++prefix.length;
  }
  return prefix;
}

}  // namespace spa
