#include "transformer/row_set.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace spa {

RowSet::RowSet(std::vector<uint32_t> rows) : rows_(std::move(rows)) {
  std::ranges::sort(rows_);
  rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
}

RowSet RowSet::Range(size_t begin, size_t end) {
  RowSet set;
  set.rows_.resize(end > begin ? end - begin : 0);
  std::iota(set.rows_.begin(), set.rows_.end(), static_cast<uint32_t>(begin));
  return set;
}

RowSet RowSet::Union(const RowSet& other) const {
  RowSet set;
  std::ranges::set_union(rows_, other.rows_, std::back_inserter(set.rows_));
  return set;
}

RowSet RowSet::Intersect(const RowSet& other) const {
  RowSet set;
  std::ranges::set_intersection(rows_, other.rows_, std::back_inserter(set.rows_));
  return set;
}

RowSet RowSet::Without(const RowSet& other) const {
  RowSet set;
  std::ranges::set_difference(rows_, other.rows_, std::back_inserter(set.rows_));
  return set;
}

RowSet RowSet::Between(size_t begin, size_t end) const {
  const auto first = std::ranges::lower_bound(rows_, static_cast<uint32_t>(begin));
  const auto last = std::ranges::lower_bound(first, rows_.end(), static_cast<uint32_t>(end));
  RowSet set;
  set.rows_.assign(first, last);
  return set;
}

RowSet RowSet::At(std::span<const uint32_t> places) const {
  std::vector<uint32_t> rows;
  rows.reserve(places.size());
  for (const uint32_t place : places) rows.push_back(rows_[place]);
  return RowSet(std::move(rows));
}

std::vector<uint32_t> RowSet::PlacesOf(const RowSet& subset) const {
  std::vector<uint32_t> places;
  places.reserve(subset.size());
  size_t place = 0;
  for (const uint32_t row : subset) {
    while (place < rows_.size() && rows_[place] < row) ++place;
    SPA_CHECK(place < rows_.size() && rows_[place] == row);
    places.push_back(static_cast<uint32_t>(place));
  }
  return places;
}

bool RowSet::Contains(size_t row) const {
  return std::ranges::binary_search(rows_, static_cast<uint32_t>(row));
}

bool RowSet::Includes(const RowSet& subset) const {
  return std::ranges::includes(rows_, subset.rows_);
}

}  // namespace spa
