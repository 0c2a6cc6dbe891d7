// Gaps that change their length while they are filled (DreamOn): a token that becomes two masks,
// and one that removes itself and the masks after it. Rows then move, so what was computed of them
// is invalid.
#include <algorithm>

#include "base/error.h"
#include "decode/decoder.h"

namespace spa {

bool Decoder::MayExpand() const {
  return options_.grow && SequenceEnd() < most_length_ && expansions_ > 0;
}

BlockRange* Decoder::GapOf(size_t position) {
  const auto gap = std::ranges::find_if(gaps_, [&](const BlockRange& range) {
    return position >= range.begin && position < range.end;
  });
  SPA_CHECK(gap != gaps_.end());
  return &*gap;
}

void Decoder::EditGap(uint32_t position) {
  const TokenId written = ids_[position];
  if (written != vocabulary_.expand_id && written != vocabulary_.delete_id) return;
  BlockRange* gap = GapOf(position);
  const auto index = static_cast<size_t>(gap - gaps_.data());
  if (written == vocabulary_.expand_id) {
    --expansions_;
    ids_[position] = vocabulary_.mask_id;
    masked_[position] = 1;
    Insert(position + 1, index);
    return;
  }
  for (size_t pos = gap->end; pos > position; --pos) {
    if (masked_[pos - 1]) Remove(pos - 1, index);
  }
  Remove(position, index);
}

void Decoder::Insert(size_t position, size_t gap) {
  const auto at = static_cast<ptrdiff_t>(position);
  ids_.pop_back();
  masked_.pop_back();
  ids_.insert(ids_.begin() + at, vocabulary_.mask_id);
  masked_.insert(masked_.begin() + at, 1);
  ++canvas_end_;
  ++block_.end;
  ++gaps_[gap].end;
  for (size_t i = gap + 1; i < gaps_.size(); ++i) gaps_[i] = {gaps_[i].begin + 1, gaps_[i].end + 1};
  moved_from_ = std::min(moved_from_, position - 1);
}

void Decoder::Remove(size_t position, size_t gap) {
  const auto at = static_cast<ptrdiff_t>(position);
  ids_.erase(ids_.begin() + at);
  masked_.erase(masked_.begin() + at);
  ids_.push_back(vocabulary_.mask_id);
  masked_.push_back(0);
  --canvas_end_;
  --block_.end;
  --gaps_[gap].end;
  for (size_t i = gap + 1; i < gaps_.size(); ++i) gaps_[i] = {gaps_[i].begin - 1, gaps_[i].end - 1};
  moved_from_ = std::min(moved_from_, position);
}

}  // namespace spa
