#include "kernels/state_memory.h"

#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/kept_rows.h"

namespace spa {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;

TEST(StateMemory, KeepsWhatIsLeftUpToTheLimit) {
  KeepStateMemory(0);
  LeaveStateMemory(TakeStateMemory(4 * kMegabyte));
  EXPECT_EQ(StateMemoryKept(), 0u);

  KeepStateMemory(9 * kMegabyte);
  Mat<std::byte> piece = TakeStateMemory(4 * kMegabyte);
  const std::byte* first = piece.data();
  LeaveStateMemory(std::move(piece));
  LeaveStateMemory(TakeStateMemory(kMegabyte));  // not worth keeping
  EXPECT_EQ(StateMemoryKept(), 4 * kMegabyte);

  piece = TakeStateMemory(4 * kMegabyte - 1000);  // nearly as large
  EXPECT_EQ(piece.data(), first);
  EXPECT_EQ(StateMemoryKept(), 0u);
  LeaveStateMemory(std::move(piece));
  LeaveStateMemory(TakeStateMemory(8 * kMegabyte));  // the oldest goes
  EXPECT_EQ(StateMemoryKept(), 8 * kMegabyte);
  EXPECT_EQ(TakeStateMemory(5 * kMegabyte).bytes(), 5 * kMegabyte);
  EXPECT_EQ(StateMemoryKept(), 8 * kMegabyte);
  ReleaseStateMemory();
  EXPECT_EQ(StateMemoryKept(), 0u);
  KeepStateMemory(0);
}

TEST(StateMemory, MovedRowsLeaveTheirsOnce) {
  KeepStateMemory(64 * kMegabyte);
  {
    std::vector<KeptRows> layers;
    for (int i = 0; i < 5; ++i) layers.emplace_back(10, 1034, 2048, KeptType::kF16);
  }
  EXPECT_EQ(StateMemoryKept(), 5 * KeptRows::BytesFor(1024, 2048, KeptType::kF16));
  KeepStateMemory(0);
}

TEST(StateMemory, KeysAndValuesLeaveTheirs) {
  KeepStateMemory(64 * kMegabyte);
  for (const KvType type : kAllKvTypes) {
    for (const size_t rows : {1, 63, 65, 2000}) {
      EXPECT_EQ(KvCache(rows, 8, 100, type).bytes(), KvCache::BytesFor(rows, 8, 100, type));
    }
  }
  ReleaseStateMemory();
  const size_t bytes = KvCache::BytesFor(2000, 8, 128, KvType::kF16);
  { EXPECT_EQ(KvCache(2000, 8, 128, KvType::kF16).bytes(), bytes); }
  EXPECT_EQ(StateMemoryKept(), bytes);
  KvCache again(2000, 8, 128, KvType::kF16);
  EXPECT_EQ(StateMemoryKept(), 0u);
  { const KvCache moved = std::move(again); }
  EXPECT_EQ(StateMemoryKept(), bytes);
  KeepStateMemory(0);
}

}  // namespace
}  // namespace spa
