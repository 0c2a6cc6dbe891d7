// A canvas that grows while it is decoded (DAEDAL, arXiv 2508.00819): at its end before a block
// begins, and by masks in place of a position that no token fits.
#include <algorithm>
#include <optional>

#include "decode/decoder.h"

namespace spa {
namespace {

constexpr size_t kProbedPositions = 32;  // at the canvas's end
constexpr double kEndSureAtStart = 0.5;  // less: the canvas grows before a block begins
constexpr double kEndSureInBlock = 0.9;  // less: a position that no token fits becomes several
constexpr double kNothingFits = 0.1;
constexpr size_t kInsertedMasks = 7;

}  // namespace

void Decoder::ProbeEnd() {
  probed_.clear();
  if (options_.grow_to == 0 || block_forwards_ > 0) return;
  const size_t count = std::min(kProbedPositions, canvas_end_ - prompt_length_);
  for (size_t pos = canvas_end_ - count; pos < canvas_end_; ++pos) {
    probed_.push_back(static_cast<uint32_t>(pos));
  }
}

double Decoder::EndConfidence() const {
  double sum = 0.0;
  for (const Candidate& candidate : probed_candidates_) {
    if (IsStop(candidate.token)) sum += candidate.probability;
  }
  return sum / static_cast<double>(probed_candidates_.size());
}

bool Decoder::GrowCanvas() {
  if (probed_.empty()) return false;
  end_confidence_ = EndConfidence();
  if (end_confidence_ >= kEndSureAtStart || canvas_end_ >= prompt_length_ + options_.grow_to) {
    return false;
  }
  // Before the first block in large steps, to find roughly the right length; later by blocks.
  const size_t length = canvas_end_ - prompt_length_;
  const size_t more = block_.begin == prompt_length_ ? length : options_.block_length;
  canvas_end_ = std::min(canvas_end_ + more, prompt_length_ + options_.grow_to);
  block_.end = std::min(block_.begin + options_.block_length, canvas_end_);
  return true;
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

}  // namespace spa
