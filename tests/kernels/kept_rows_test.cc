// Rows kept in 16 bits, against the conversions of one number.
#include "kernels/kept_rows.h"

#include <cmath>

#include "kernels/block_codec.h"
#include "kernels/block_layout.h"
#include "tests/kernels/target_test.h"

namespace spa {
namespace {

class KeptRowsTest : public TargetTest {};
SPA_FOR_EACH_TARGET(KeptRowsTest);

float Rounded(KeptType type, float value) {
  if (type == KeptType::kF32) return value;
  if (type == KeptType::kBF16) {
    std::byte bytes[2];
    EncodeRow(DType::kBF16, &value, 1, bytes);
    DecodeRow(DType::kBF16, bytes, 1, &value);
    return value;
  }
  return HalfToFloat(FloatToHalf(std::clamp(value, -kMaxHalf, kMaxHalf)));
}

TEST_P(KeptRowsTest, KeepsAddsAndCopies) {
  ThreadPool pool(2);
  for (const KeptType type : {KeptType::kF32, KeptType::kF16, KeptType::kBF16}) {
    for (const size_t cols : {1, 7, 64, 300}) {
      Mat<float> src = RandomMat(3, cols, 1);
      for (size_t c = 0; c < cols; ++c)
        src.Row(1)[c] *= std::ldexp(1.0f, -static_cast<int>(c % 30));
      src.Row(2)[0] = 1e6f;  // no half is so large
      src.Row(2)[cols - 1] = -1e-9f;
      const std::vector<uint32_t> rows = {2, 5, 9};
      KeptRows kept(5, 10, cols, type);
      kept.Store(rows, src.View(), pool);  // row 2 is not kept
      const std::vector<uint32_t> some = {5, 9};
      const Mat<float> before = RandomMat(10, cols, 2);
      Mat<float> added = RandomMat(10, cols, 2), copied = RandomMat(10, cols, 2);
      kept.AddTo(some, added.View(), pool);
      kept.CopyTo(some, copied.View(), pool);
      EXPECT_TRUE(SameBits(added.Row(2), before.Row(2), cols));
      EXPECT_THROW(kept.AddTo(rows, added.View(), pool), InternalError);
      KeptRows adopted(7, 12, cols, type);
      adopted.Adopt(kept, 10);
      Mat<float> again(12, cols);
      adopted.CopyTo(std::vector<uint32_t>{9}, again.View(), pool);
      std::vector<float> cosines(3), loaded(cols);
      kept.Cosines(rows, src.View(), cosines, pool);
      EXPECT_EQ(cosines[0], -1.0f);  // not kept
      EXPECT_THROW(kept.Load(2, loaded.data()), InternalError);
      for (size_t i = 1; i < 3; ++i) {
        kept.Load(rows[i], loaded.data());
        EXPECT_EQ(cosines[i], Cosine(src.Row(i), loaded.data(), cols));
        std::vector<float> rounded(src.Row(i), src.Row(i) + cols);
        RoundAsKept(type, rounded.data(), cols);
        EXPECT_TRUE(SameBits(rounded.data(), loaded.data(), cols));
        for (size_t c = 0; c < cols; ++c) {
          const float value = Rounded(type, src.Row(i)[c]);
          EXPECT_EQ(copied.Row(rows[i])[c], value);
          EXPECT_EQ(added.Row(rows[i])[c], before.Row(rows[i])[c] + value);
          if (rows[i] == 9) {
            EXPECT_EQ(again.Row(9)[c], value);
          }
        }
      }
    }
  }
}

TEST_P(KeptRowsTest, ANanStaysOne) {
  const std::vector<float> values(16, NAN);
  for (const KeptType type : {KeptType::kF16, KeptType::kBF16}) {
    std::vector<std::byte> bytes(32);
    std::vector<float> back(16);
    EncodeKept(type, values.data(), 16, bytes.data());
    DecodeKept(type, bytes.data(), 16, back.data());
    for (const float value : back) EXPECT_TRUE(std::isnan(value));
  }
}

}  // namespace
}  // namespace spa
