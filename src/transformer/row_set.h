// A set of sequence rows: sorted, unique. Two index spaces meet in a sparse step - the row of the
// sequence and the place in a gathered matrix; place i of a gathered matrix is always rows[i].
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace spa {

class RowSet {
 public:
  RowSet() = default;
  // Takes rows in any order, with repeats.
  explicit RowSet(std::vector<uint32_t> rows) : rows_(std::move(rows)) {
    std::ranges::sort(rows_);
    rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
  }
  static RowSet Range(size_t begin, size_t end) {
    RowSet set;
    set.rows_.resize(end > begin ? end - begin : 0);
    std::iota(set.rows_.begin(), set.rows_.end(), static_cast<uint32_t>(begin));
    return set;
  }
  static RowSet All(size_t num_rows) { return Range(0, num_rows); }

  RowSet Union(const RowSet& other) const {
    RowSet set;
    std::ranges::set_union(rows_, other.rows_, std::back_inserter(set.rows_));
    return set;
  }
  RowSet Intersect(const RowSet& other) const {
    RowSet set;
    std::ranges::set_intersection(rows_, other.rows_, std::back_inserter(set.rows_));
    return set;
  }
  RowSet Without(const RowSet& other) const {
    RowSet set;
    std::ranges::set_difference(rows_, other.rows_, std::back_inserter(set.rows_));
    return set;
  }
  // The rows at the given places: places of a gathered matrix -> rows of the sequence.
  RowSet At(std::span<const uint32_t> places) const {
    std::vector<uint32_t> rows;
    rows.reserve(places.size());
    for (const uint32_t place : places) rows.push_back(rows_[place]);
    return RowSet(std::move(rows));
  }
  // Where each row of `subset` stands in this set; every one of them must be in it.
  std::vector<uint32_t> PlacesOf(const RowSet& subset) const {
    std::vector<uint32_t> places;
    places.reserve(subset.size());
    size_t place = 0;
    for (const uint32_t row : subset) {
      while (rows_[place] != row) ++place;
      places.push_back(static_cast<uint32_t>(place));
    }
    return places;
  }
  bool Contains(size_t row) const {
    return std::ranges::binary_search(rows_, static_cast<uint32_t>(row));
  }
  bool Includes(const RowSet& subset) const { return std::ranges::includes(rows_, subset.rows_); }

  size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  uint32_t operator[](size_t place) const { return rows_[place]; }
  std::vector<uint32_t>::const_iterator begin() const { return rows_.begin(); }
  std::vector<uint32_t>::const_iterator end() const { return rows_.end(); }
  operator std::span<const uint32_t>() const { return rows_; }  // NOLINT
  bool operator==(const RowSet&) const = default;

 private:
  std::vector<uint32_t> rows_;
};

}  // namespace spa
