// A set of sequence rows: sorted, unique. Two index spaces meet in a sparse step: a row of the
// sequence, and a place in a gathered matrix. Place i of a gathered matrix always holds rows[i].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spa {

class RowSet {
 public:
  RowSet() = default;
  // Takes rows in any order, with repeats.
  explicit RowSet(std::vector<uint32_t> rows);
  static RowSet Range(size_t begin, size_t end);
  static RowSet All(size_t num_rows) { return Range(0, num_rows); }

  RowSet Union(const RowSet& other) const;
  RowSet Intersect(const RowSet& other) const;
  RowSet Without(const RowSet& other) const;
  // The rows r with begin <= r < end.
  RowSet Between(size_t begin, size_t end) const;
  // The rows at the given places: places of a gathered matrix -> rows of the sequence.
  RowSet At(std::span<const uint32_t> places) const;
  // The place of each row of `subset` in this set, which must hold all of them.
  std::vector<uint32_t> PlacesOf(const RowSet& subset) const;
  bool Contains(size_t row) const;
  bool Includes(const RowSet& subset) const;

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
