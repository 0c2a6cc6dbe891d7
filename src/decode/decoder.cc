#include "decode/decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "decode/revoke.h"
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
  infills_ = !given.ids.empty();
  canvas_end_ =
      infills_ ? prompt_length_ + options_.gen_length : CanvasEnd(prompt_length_, options_);
  suffix_length_ = suffix.size();
  const size_t most = std::max(canvas_end_, prompt_length_ + MaxCanvas(options_));
  if (most > canvas_end_ && suffix_length_ > 0) {
    throw Error("a canvas with text after it cannot grow: leave out --grow-to");
  }
  given.ids.resize(most - prompt_length_,
                   options_.noise ? vocabulary_.fill_id : vocabulary_.mask_id);
  ids_.insert(ids_.end(), given.ids.begin(), given.ids.end());
  masked_.assign(ids_.size(), 0);
  for (size_t pos = prompt_length_; pos < most; ++pos) {
    if (infills_ && ids_[pos] != vocabulary_.mask_id) continue;
    masked_[pos] = 1;
    if (pos >= canvas_end_) continue;
    if (gaps_.empty() || gaps_.back().end != pos) gaps_.push_back({pos, pos});
    ++gaps_.back().end;
  }
  ids_.insert(ids_.end(), suffix.begin(), suffix.end());
  for (uint32_t& place : given.spaced) place += static_cast<uint32_t>(prompt_length_);
  spaced_ = RowSet(std::move(given.spaced));
  most_length_ = SequenceEnd();
  if (options_.grow) {
    SPA_CHECK(options_.schedule == Schedule::kNone && spaced_.empty());
    most_length_ += *options_.grow;
    expansions_ = *options_.grow;
    for (size_t pos = prompt_length_; pos < canvas_end_; ++pos) expansions_ += masked_[pos];
    ids_.resize(most_length_, vocabulary_.mask_id);
  }
  if (options_.wino) {
    if (shift_ > 0) {
      throw Error("wino is defined for models that predict a position from its own row: use saber");
    }
    ids_.resize(ids_.size() + block, vocabulary_.mask_id);  // shadow rows
  }
  masked_.resize(ids_.size(), 0);
  moved_from_ = ids_.size();
  if (options_.credit > 0.0 || options_.klass || options_.saber > 0) memory_.resize(most);
  SPA_CHECK(!options_.grow || memory_.empty());  // gap_edits.cc does not move it
  const bool slides = options_.slide != Slide::kOff;
  const size_t num_blocks = slides ? 1 : (options_.gen_length + block - 1) / block;
  steps_per_block_ = options_.steps_per_block > 0 ? options_.steps_per_block
                                                  : (options_.steps + num_blocks - 1) / num_blocks;
  if (options_.schedule == Schedule::kTimeGrid) grid_ = TimeGrid(steps_per_block_, options_.eps);
  const size_t begin = options_.blocks_from_start ? prompt_length_ / block * block : prompt_length_;
  // If the prompt is whole blocks, its last row gives the first token.
  if (options_.seed_blocks && begin == prompt_length_) {
    StartBlock({begin - std::min(begin, block), begin});
    seeding_ = true;
  } else {
    StartBlock({begin, slides ? canvas_end_ : std::min(begin + block, canvas_end_)});
  }
  Advance();
}

void Decoder::StartBlock(BlockRange block) {
  block_ = block;
  step_ = block_forwards_ = post_steps_ = 0;
  edited_ = false;
  last_settled_ = kWinoFirstLast;
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

bool Decoder::IsStop(TokenId id) const {
  return std::ranges::find(vocabulary_.stop_ids, id) != vocabulary_.stop_ids.end();
}

bool Decoder::HoldsStop(size_t end) const {
  for (size_t pos = prompt_length_; pos < end; ++pos) {
    if (!masked_[pos] && IsStop(ids_[pos])) return true;
  }
  return false;
}

bool Decoder::HasGap(BlockRange range) const {
  return !infills_ || std::ranges::any_of(gaps_, [&](const BlockRange& gap) {
    return gap.begin < range.end && range.begin < gap.end;
  });
}

bool Decoder::BlockFinished() const {
  if (MasksIn(block_) > 0) return false;
  if (!options_.edit_threshold || block_.end <= prompt_length_ || !HasGap(block_)) return true;
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
    // Dream's schedule has steps that settle nothing, so their forward pass is skipped.
    const bool each = options_.order == Order::kRandom && options_.schedule == Schedule::kTimeGrid;
    if (RuleDecides() || each || options_.grow_to > 0 || QuotaOfStep() > 0) return;
    ++step_;
  }
}

const StepInput& Decoder::Begin(bool watch) {
  SPA_CHECK(!done_);
  positions_.clear();
  checked_.clear();
  const BlockRange part = seeding_ ? block_ : Part();
  RowSet visible = VisibleRows(part);
  if (seeding_) {
    positions_.push_back(static_cast<uint32_t>(block_.end));
  } else {
    for (size_t pos = part.begin; pos < part.end; ++pos) {
      if (masked_[pos]) positions_.push_back(static_cast<uint32_t>(pos));
    }
    if (KnownAhead()) KeepNextPositions();
    for (size_t pos = part.end; ReadsAll() && pos < canvas_end_; ++pos) {
      const auto position = static_cast<uint32_t>(pos);
      const bool seen = visible.Contains(position - static_cast<uint32_t>(shift_));
      if (masked_[pos] && seen) positions_.push_back(position);
    }
    const bool checks = options_.edit_threshold || Revokes(options_);
    for (size_t pos = std::max(prompt_length_, block_.begin); checks && pos < block_.end; ++pos) {
      if (!masked_[pos] && HasGap({pos, pos + 1})) checked_.push_back(static_cast<uint32_t>(pos));
    }
    if (positions_.empty()) ++post_steps_;
  }
  ProbeEnd();
  watched_.clear();
  for (size_t pos = prompt_length_; watch && pos < canvas_end_; ++pos) {
    const auto position = static_cast<uint32_t>(pos);
    if (masked_[pos] && !std::ranges::binary_search(positions_, position)) {
      watched_.push_back(position);
    }
  }
  watched_candidates_.assign(watched_.size(), {});
  candidates_.assign(positions_.size(), {});
  if (options_.noise) likeliest_.assign(positions_.size(), 0);
  checked_candidates_.assign(checked_.size(), {});
  probed_candidates_.assign(probed_.size(), {});
  const BlockRange cached = CachedBlock(part);
  input_ = {.ids = ids_,
            .masked = masked_,
            .prompt_length = prompt_length_,
            .block_begin = cached.begin,
            .block_end = cached.end,
            .part_begin = part.begin,
            .part_end = part.end,
            .step = forwards_,
            .step_in_block = block_forwards_,
            .shift = shift_,
            .visible = std::move(visible),
            .changed = changed_};
  input_.wanted = input_.RowsOf(positions_);
  if (options_.wino) {
    const auto shadow = static_cast<uint32_t>(ids_.size() - options_.block_length);
    std::vector<uint32_t> rows = checked_;
    for (uint32_t& row : rows) row += shadow - static_cast<uint32_t>(block_.begin);
    input_.shadow_begin = shadow;
    input_.checked = input_.renewed = RowSet(std::move(rows));
    input_.visible = input_.visible.Union(input_.renewed);
  } else {
    const RowSet probed = input_.RowsOf(probed_);
    input_.checked =
        input_.RowsOf(checked_).Union(probed.Without(input_.wanted)).Union(input_.RowsOf(watched_));
    input_.renewed = std::exchange(renewed_, RowSet()).Union(probed);
  }
  return input_;
}

size_t Decoder::IndexOf(uint32_t row) const {
  // The prompt has at least one token, so every position has its own row.
  const auto position = row + static_cast<uint32_t>(shift_);
  return static_cast<size_t>(std::ranges::lower_bound(positions_, position) - positions_.begin());
}

void Decoder::Offer(uint32_t row, std::span<float> logits) {
  const uint32_t position = input_.PositionOf(input_.PlaceOf(row));
  // The position's candidate in one of the lists, or null.
  const auto find = [position](const auto& positions, auto& candidates) {
    const auto place = std::ranges::lower_bound(positions, position);
    return place != positions.end() && *place == position
               ? &candidates[static_cast<size_t>(place - positions.begin())]
               : nullptr;
  };
  if (input_.IsShadow(row)) {
    const auto token = static_cast<size_t>(ids_[position]);
    const double probability = std::exp(logits[token] - ComputeLogitStats(logits).log_sum_exp);
    *find(checked_, checked_candidates_) =
        Candidate{.token = ids_[position], .probability = probability};
    return;
  }
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
  Candidate* wanted = find(positions_, candidates_);
  double divergence = 0.0;
  if (wanted != nullptr && options_.klass) divergence = Divergence(logits, memory_[position]);
  if (wanted != nullptr && options_.credit > 0.0) AddCredit(options_, logits, memory_[position]);
  Candidate candidate =
      SampleToken(logits, options_, vocabulary_, RandomStream(options_.seed, forwards_, position));
  candidate.divergence = divergence;
  if (wanted != nullptr) *wanted = candidate;
  if (auto* checked = find(checked_, checked_candidates_)) *checked = candidate;
  if (auto* probed = find(probed_, probed_candidates_)) *probed = candidate;
  if (auto* watched = find(watched_, watched_candidates_)) *watched = candidate;
}

void Decoder::Forget(uint32_t position) {
  if (!memory_.empty()) memory_[position] = PositionMemory();
}

void Decoder::Settle(size_t index) {
  const uint32_t pos = positions_[index];
  ids_[pos] = candidates_[index].token;
  masked_[pos] = 0;
  Forget(pos);
  if (options_.saber > 0) {
    memory_[pos].settled_with = memory_[pos].last_confidence = candidates_[index].probability;
  }
}

void Decoder::Open(uint32_t position) {
  ids_[position] = vocabulary_.mask_id;
  masked_[position] = 1;
  Forget(position);
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
  if (GrowCanvas()) {
    changed_ = RowSet();
    ++forwards_;
    return;
  }
  const size_t begin = Part().begin;
  const std::vector<TokenId> before = options_.grow_to > 0 ? ids_ : std::vector<TokenId>();
  std::vector<uint32_t> changed;
  if (Revokes(options_)) {
    changed = Revise();
  } else {
    for (const size_t index : Choose()) {
      Settle(index);
      changed.push_back(positions_[index]);
    }
  }
  if (ReadsAll()) KeepSure();
  if (!sure_.empty()) SettleSure(changed);
  edited_ = false;
  for (size_t i = 0; options_.edit_threshold && i < checked_.size(); ++i) {
    const auto& candidate = checked_candidates_[i];
    if (!candidate || candidate->probability <= *options_.edit_threshold ||
        candidate->token == ids_[checked_[i]]) {
      continue;
    }
    ids_[checked_[i]] = candidate->token;
    changed.push_back(checked_[i]);
    edited_ = true;
  }
  if (options_.grow_to > 0) {
    InsertMasks();
    changed.clear();
    for (size_t pos = prompt_length_; pos < canvas_end_; ++pos) {
      if (ids_[pos] != before[pos]) changed.push_back(static_cast<uint32_t>(pos));
    }
  }
  changed_ = RowSet(std::move(changed));
  moved_from_ = ids_.size();
  if (options_.grow) {
    // From the right, so that positions still to be handled do not move.
    const std::vector<uint32_t> written(changed_.begin(), changed_.end());
    for (size_t i = written.size(); i > 0; --i) EditGap(written[i - 1]);
    if (moved_from_ < SequenceEnd())
      changed_ = changed_.Union(RowSet::Range(moved_from_, SequenceEnd()));
    changed_ = changed_.Between(0, SequenceEnd());
  }
  ++forwards_;
  ++block_forwards_;
  ++step_;
  if (options_.slide != Slide::kOff) {
    // Caches that refresh once per block do so each time another block's length is settled.
    slid_ = SlidingPart().begin - begin;
    settled_since_block_start_ += changed_.size();
    if (settled_since_block_start_ >= options_.block_length) {
      settled_since_block_start_ = block_forwards_ = 0;
    }
  }
  if (seeding_) {
    seeding_ = false;
    StartBlock({block_.end, std::min(block_.end + options_.block_length, canvas_end_)});
  }
  if (options_.stop == Stop::kAnswer && SettledPrefix().ended) return Finish();
  Advance();
}

size_t Decoder::settled() const {
  return done_ ? settled_at_end_ : canvas().size() - MasksIn({prompt_length_, canvas_end_});
}

void Decoder::Finish() {
  settled_at_end_ = settled();
  done_ = true;
  for (size_t pos = prompt_length_; pos < canvas_end_; ++pos) {
    if (masked_[pos]) ids_[pos] = vocabulary_.fill_id;
    masked_[pos] = 0;
  }
}

Decoder::Prefix Decoder::SettledPrefix() const {
  // Tokens of a block that is still edited or revised may change.
  const bool revised = options_.edit_threshold || Revokes(options_);
  const size_t end =
      revised && !done_ && !BlockFinished() ? std::max(prompt_length_, block_.begin) : canvas_end_;
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
