#include "transformer/row_set.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace spa {
namespace {

using Rows = std::vector<uint32_t>;

Rows List(const RowSet& set) { return {set.begin(), set.end()}; }

TEST(RowSet, SortsAndDropsRepeats) {
  EXPECT_EQ(List(RowSet({5, 1, 5, 3, 1})), (Rows{1, 3, 5}));
  EXPECT_EQ(List(RowSet::Range(3, 6)), (Rows{3, 4, 5}));
  EXPECT_EQ(List(RowSet::All(2)), (Rows{0, 1}));
  EXPECT_TRUE(RowSet::Range(4, 4).empty());
  EXPECT_TRUE(RowSet::Range(4, 2).empty());
}

TEST(RowSet, AgreesWithSetsOfTheStandardLibrary) {
  for (uint64_t trial = 0; trial < 200; ++trial) {
    const RandomStream random(trial, 0, 0);
    std::set<uint32_t> a, b;
    for (uint64_t row = 0; row < 20; ++row) {
      if (random.Uniform(2 * row) < 0.4) a.insert(static_cast<uint32_t>(row));
      if (random.Uniform(2 * row + 1) < 0.4) b.insert(static_cast<uint32_t>(row));
    }
    const RowSet x(Rows(a.begin(), a.end())), y(Rows(b.begin(), b.end()));
    std::set<uint32_t> both = a, common, only_a;
    both.insert(b.begin(), b.end());
    for (const uint32_t row : a) (b.contains(row) ? common : only_a).insert(row);
    EXPECT_EQ(List(x.Union(y)), Rows(both.begin(), both.end()));
    EXPECT_EQ(List(x.Intersect(y)), Rows(common.begin(), common.end()));
    EXPECT_EQ(List(x.Without(y)), Rows(only_a.begin(), only_a.end()));
    EXPECT_EQ(x.Includes(y), common.size() == b.size());
    for (uint32_t row = 0; row < 22; ++row) EXPECT_EQ(x.Contains(row), a.contains(row));
  }
}

TEST(RowSet, PlacesAndRowsAreInverse) {
  const RowSet set({2, 3, 7, 11, 40});
  const RowSet subset({3, 11, 40});
  EXPECT_EQ(set.PlacesOf(subset), (Rows{1, 3, 4}));
  EXPECT_EQ(set.At(set.PlacesOf(subset)), subset);
  EXPECT_EQ(set.PlacesOf(set), (Rows{0, 1, 2, 3, 4}));
  EXPECT_TRUE(set.PlacesOf(RowSet()).empty());
  EXPECT_TRUE(RowSet().PlacesOf(RowSet()).empty());
}

// A row that is missing before, between or after the others, and in an empty set.
TEST(RowSet, PlacesOfARowThatIsMissingIsAMistakeOfTheCaller) {
  const RowSet set({2, 3, 7});
  for (const uint32_t row : {0u, 5u, 8u}) {
    EXPECT_THROW(set.PlacesOf(RowSet({2, row})), InternalError);
  }
  EXPECT_THROW(RowSet().PlacesOf(RowSet({0})), InternalError);
}

}  // namespace
}  // namespace spa
