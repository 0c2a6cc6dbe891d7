#include "decode/decoder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "decode/commit_rule.h"
#include "decode/revoke.h"
#include "decode/schedule.h"
#include "kernels/logit_stats.h"

namespace spa {
namespace {

// DSB recomputes at least this many rows before a sliding block.
constexpr size_t kRowsBeforeSlidingBlock = 24;
// The element of a position's random stream that thins a window; no token has this number.
constexpr uint64_t kWindowDraw = uint64_t{1} << 33;

// DAEDAL's constants.
constexpr size_t kProbedPositions = 32;  // at the canvas's end
constexpr double kEndSureAtStart = 0.5;  // less: the canvas grows before a block begins
constexpr double kEndSureInBlock = 0.9;  // less: a position that no token fits becomes several
constexpr double kNothingFits = 0.1;
constexpr size_t kInsertedMasks = 7;

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

BlockRange Decoder::SlidingPart() const {
  BlockRange part = block_;
  while (part.begin < part.end && !masked_[part.begin]) ++part.begin;
  const size_t settled = block_.end - block_.begin - MasksIn(block_);
  part.end = std::min(block_.begin + options_.block_length + settled, block_.end);
  if (options_.slide == Slide::kConst) {
    part.end = std::min(part.end, part.begin + options_.block_length);
  }
  return part;
}

BlockRange Decoder::CachedBlock(BlockRange part) const {
  if (options_.slide == Slide::kOff) return block_;
  // Includes what was settled in the last step.
  const size_t before = std::max(slid_, kRowsBeforeSlidingBlock);
  return {std::max(block_.begin, part.begin - std::min(part.begin, before)), part.end};
}

bool Decoder::InWindow(size_t position, size_t distance) const {
  if (options_.window_scale == 0.0) return true;
  const double width = static_cast<double>(std::max<size_t>(*options_.window, 2) - 1);
  const double z = options_.window_sigma * static_cast<double>(distance) / width;
  const double keep =
      options_.window_scale / std::sqrt(2.0 * std::numbers::pi) * std::exp(-0.5 * z * z);
  return RandomStream(options_.seed, block_.begin, position).Uniform(kWindowDraw) < keep;
}

RowSet Decoder::VisibleRows(BlockRange part) const {
  if (options_.block_attention) return RowSet::All(block_.end);
  if (!options_.window) return RowSet::All(SequenceEnd());
  const size_t end = options_.slide == Slide::kOff ? block_.end : part.end;
  std::vector<uint32_t> rows(end);
  std::iota(rows.begin(), rows.end(), 0u);
  const size_t window_end = end + std::min(*options_.window, canvas_end_ - end);
  for (size_t pos = end; pos < window_end; ++pos) {
    // A row that has been settled is never hidden again.
    if (!masked_[pos] || InWindow(pos, pos - end)) rows.push_back(static_cast<uint32_t>(pos));
  }
  // The canvas's last row marks where the answer must end.
  const bool tail = window_end < canvas_end_ && options_.window_scale == 0.0;
  for (size_t pos = tail ? canvas_end_ - 1 : canvas_end_; pos < SequenceEnd(); ++pos) {
    rows.push_back(static_cast<uint32_t>(pos));
  }
  return RowSet(std::move(rows));
}

BlockRange Decoder::Part() const {
  if (options_.slide != Slide::kOff) return SlidingPart();
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

bool Decoder::RuleDecides() const { return RuleOf(options_) != Rule::kSchedule; }

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
    // Dream's schedule has steps that settle nothing, so their forward pass is skipped.
    const bool each = options_.order == Order::kRandom && options_.schedule == Schedule::kTimeGrid;
    if (RuleDecides() || each || options_.grow_to > 0 || QuotaOfStep() > 0) return;
    ++step_;
  }
}

bool Decoder::KnownAhead() const {
  return options_.order == Order::kRandom && options_.schedule == Schedule::kEvenSplit &&
         options_.order_temperature == 0.0 && options_.eos_rule != EosRule::kConfidence &&
         !RuleDecides();
}

// Random scores do not depend on logits, so only the positions to be settled need any.
void Decoder::KeepNextPositions() {
  std::vector<Candidate> draws(positions_.size());
  for (size_t i = 0; i < draws.size(); ++i) {
    draws[i].score = RandomStream(options_.seed, forwards_, positions_[i]).Uniform(kOrderDraw);
  }
  std::vector<uint32_t> next;
  for (const size_t index : CommitBest(draws, QuotaOfStep())) next.push_back(positions_[index]);
  positions_ = std::move(next);
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
      if (!masked_[pos]) checked_.push_back(static_cast<uint32_t>(pos));
    }
    if (positions_.empty()) ++post_steps_;
  }
  probed_.clear();
  if (options_.grow_to > 0 && block_forwards_ == 0) {
    const size_t count = std::min(kProbedPositions, canvas_end_ - prompt_length_);
    for (size_t pos = canvas_end_ - count; pos < canvas_end_; ++pos) {
      probed_.push_back(static_cast<uint32_t>(pos));
    }
  }
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

double Decoder::CurrentThreshold() const {
  const double threshold = ThresholdOf(options_);
  if (options_.loosen == 0.0) return threshold;
  const BlockRange part = Part();
  size_t suffix = 0;
  for (const uint32_t row : input_.visible.Between(part.end, canvas_end_)) suffix += masked_[row];
  return LoosenedThreshold(threshold, options_.loosen, MasksIn(part), part.end - part.begin,
                           suffix);
}

std::vector<size_t> Decoder::Choose() const {
  // The first step may have candidates after the block.
  const auto of_part = static_cast<size_t>(
      std::ranges::lower_bound(positions_, static_cast<uint32_t>(input_.part_end)) -
      positions_.begin());
  const auto candidates = std::span(candidates_).first(ReadsAll() ? of_part : candidates_.size());
  // Draws of positions have their own stream: no position has this number.
  const RandomStream random(options_.seed, forwards_, UINT64_MAX);
  if (seeding_) return {0};
  // Prophet's authors count from one.
  const double progress = static_cast<double>(step_ + 1) / static_cast<double>(steps_per_block_);
  if (options_.prophet && ProphetExits(candidates, progress)) {
    std::vector<size_t> all(candidates.size());
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }
  switch (RuleOf(options_)) {
    case Rule::kThreshold: {
      const size_t at_least = options_.schedule == Schedule::kEvenSplitBlock &&
                                      !candidates.empty() && !options_.edit_threshold
                                  ? QuotaOfStep()
                                  : std::min<size_t>(1, candidates.size());
      return CommitThreshold(candidates, CurrentThreshold(), at_least);
    }
    case Rule::kFactor:
      return CommitFactor(candidates, *options_.factor);
    case Rule::kEntropyBound:
      return CommitEntropyBound(candidates, *options_.entropy_bound);
    case Rule::kHierarchical:
      return CommitHierarchical(candidates, positions_, CurrentThreshold(), *options_.hierarchical);
    case Rule::kKlass:
      return CommitKlass(candidates, CurrentThreshold(), *options_.klass,
                         std::max<size_t>(1, QuotaOfStep()));
    case Rule::kWino:
    case Rule::kSaber:
      SPA_CHECK(false);  // Revise
    case Rule::kSchedule:
      break;
  }
  if (options_.schedule == Schedule::kTimeGrid && options_.order == Order::kRandom) {
    const double share =
        step_ + 1 >= steps_per_block_ ? 1.0 : 1.0 - grid_[step_ + 1] / grid_[step_];
    return CommitEach(candidates, share, random);
  }
  if (options_.order_temperature > 0.0) {
    return CommitDrawn(candidates, QuotaOfStep(), options_.order_temperature, random);
  }
  // Masks that were inserted are not in the schedule.
  return CommitBest(candidates, std::max<size_t>(QuotaOfStep(), options_.grow_to > 0 ? 1 : 0));
}

void Decoder::KeepSure() {
  sure_.assign(canvas_end_, std::nullopt);
  for (size_t i = 0; i < positions_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    if (candidate.probability >= *options_.first_threshold && !IsStop(candidate.token)) {
      sure_[positions_[i]] = candidate.token;
    }
  }
}

void Decoder::SettleSure(std::vector<uint32_t>& changed) {
  for (size_t pos = prompt_length_; pos < canvas_end_; ++pos) {
    if (!masked_[pos]) continue;
    if (!sure_[pos]) return;
    ids_[pos] = *sure_[pos];
    masked_[pos] = 0;
    Forget(static_cast<uint32_t>(pos));
    changed.push_back(static_cast<uint32_t>(pos));
  }
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

std::vector<uint32_t> Decoder::Revise() {
  std::vector<size_t> settles, opens;
  if (options_.wino) {
    settles = WinoSettles(candidates_, CurrentThreshold());
    std::vector<double> unseen;
    for (const auto& candidate : checked_candidates_) unseen.push_back(candidate->probability);
    if (settles.size() > 1) opens = WinoOpens(unseen, *options_.wino, last_settled_);
    last_settled_ = settles.size();
  } else {
    double sum = 0.0, count = 0.0;
    for (const PositionMemory& memory : memory_) {
      sum += memory.settled_with;
      count += memory.settled_with > 0.0 ? 1.0 : 0.0;
    }
    settles = SaberSettles(candidates_, count > 0.0 ? sum / count : 1.0, options_.saber);
    std::vector<double> gain;
    for (size_t i = 0; i < checked_.size(); ++i) {
      double& last = memory_[checked_[i]].last_confidence;
      const double now = checked_candidates_[i] ? checked_candidates_[i]->probability : last;
      gain.push_back(now - std::exchange(last, now));
    }
    const bool full = settles.size() == candidates_.size();  // then nothing opens again
    if (!full) opens = SaberOpens(gain, options_.saber, settles.size());
  }
  std::vector<uint32_t> changed;
  for (const size_t index : settles) {
    Settle(index);
    changed.push_back(positions_[index]);
  }
  for (const size_t index : opens) {
    Open(checked_[index]);
    changed.push_back(checked_[index]);
  }
  return changed;
}

double Decoder::EndConfidence() const {
  double sum = 0.0;
  for (const Candidate& candidate : probed_candidates_) {
    if (IsStop(candidate.token)) sum += candidate.probability;
  }
  return sum / static_cast<double>(kProbedPositions);
}

void Decoder::GrowCanvas() {
  // Before the first block in large steps, to find roughly the right length; later by blocks.
  const size_t length = canvas_end_ - prompt_length_;
  const size_t more = block_.begin == prompt_length_ ? length : options_.block_length;
  canvas_end_ = std::min(canvas_end_ + more, prompt_length_ + options_.grow_to);
  block_.end = std::min(block_.begin + options_.block_length, canvas_end_);
}

void Decoder::InsertMasks() {
  const size_t count = std::min(kInsertedMasks, prompt_length_ + options_.grow_to - canvas_end_);
  if (count == 0 || end_confidence_ >= kEndSureInBlock) return;
  std::optional<size_t> least;
  for (size_t i = 0; i < positions_.size(); ++i) {
    if (!masked_[positions_[i]] || candidates_[i].probability >= kNothingFits) continue;
    if (!least || candidates_[i].probability < candidates_[*least].probability) least = i;
  }
  if (!least) return;
  const auto move = [&](auto& values, const auto& value) {
    const auto from = values.begin() + static_cast<ptrdiff_t>(positions_[*least]) + 1;
    const auto end = values.begin() + static_cast<ptrdiff_t>(canvas_end_);
    std::move_backward(from, end, end + static_cast<ptrdiff_t>(count));
    std::fill_n(from, count, value);
  };
  move(ids_, vocabulary_.mask_id);
  move(masked_, uint8_t{1});
  if (!memory_.empty()) move(memory_, PositionMemory());
  canvas_end_ += count;
  block_.end = std::min(block_.begin + options_.block_length, canvas_end_);
  renewed_ = RowSet::Range(positions_[*least] + 1, canvas_end_);
}

// The second draw of a position's stream; the first one is for its token.
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
    // Every row of a finished block is computed once more, as text.
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
  if (!probed_.empty()) {
    end_confidence_ = EndConfidence();
    if (end_confidence_ < kEndSureAtStart && canvas_end_ < prompt_length_ + options_.grow_to) {
      GrowCanvas();
      changed_ = RowSet();
      ++forwards_;
      return;
    }
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
