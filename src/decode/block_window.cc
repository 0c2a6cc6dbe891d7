// Which positions of the canvas are decoded now, and which rows take part in the step: sub-blocks,
// sliding blocks (DSB) and suffix windows (Streaming-dLLM, DPad).
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "decode/decoder.h"

namespace spa {
namespace {

// DSB recomputes at least this many rows before a sliding block.
constexpr size_t kRowsBeforeSlidingBlock = 24;
// The element of a position's random stream that thins a window; no token has this number.
constexpr uint64_t kWindowDraw = uint64_t{1} << 33;

}  // namespace

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

}  // namespace spa
