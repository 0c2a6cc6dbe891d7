// How many positions a step settles, and which: by schedule or rule, or because the first step was
// sure; and which settled positions open again.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "decode/commit_rule.h"
#include "decode/decoder.h"
#include "decode/revoke.h"
#include "decode/schedule.h"

namespace spa {

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

bool Decoder::KnownAhead() const {
  return options_.order == Order::kRandom && options_.schedule == Schedule::kEvenSplit &&
         options_.order_temperature == 0.0 && options_.eos_rule != EosRule::kConfidence &&
         !RuleDecides() && !options_.prophet && options_.grow_to == 0;
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

}  // namespace spa
