#include "kernels/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/block_codec.h"
#include "kernels/reference.h"
#include "kernels/simd_targets.h"
#include "tests/kernels/amx_emulator.h"
#include "tests/kernels/avx_vnni_emulator.h"
#include "tests/kernels/target_test.h"

namespace spa {
namespace {

constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,
                               DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                               DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

bool IsFloat(DType dtype) { return Info(dtype).block_size == 1; }

// Byte offsets of the half-precision fields of a block.
std::vector<size_t> HalfFields(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208};
    default:
      return {0};
  }
}

struct Weights {
  std::vector<std::byte> bytes;
  MatrixSource source;
};

// Every bit pattern of the integers, with scales around 0.01.
Weights RandomWeights(DType dtype, size_t rows, size_t cols, uint32_t seed) {
  Weights w;
  w.bytes.resize(rows * RowBytes(dtype, cols));
  std::mt19937 random(seed);
  if (IsFloat(dtype)) {
    const Mat<float> values = RandomMat(rows, cols, seed, 0.1f);
    for (size_t r = 0; r < rows; ++r) {
      EncodeRow(dtype, values.Row(r), cols, w.bytes.data() + r * RowBytes(dtype, cols));
    }
  } else {
    for (std::byte& b : w.bytes) b = static_cast<std::byte>(random());
    for (size_t block = 0; block < w.bytes.size(); block += Info(dtype).block_bytes) {
      for (const size_t field : HalfFields(dtype)) {
        const float value = std::uniform_real_distribution<float>(-0.02f, 0.02f)(random);
        EncodeRow(DType::kF16, &value, 1, w.bytes.data() + block + field);
      }
    }
  }
  w.source = {.dtype = dtype, .rows = rows, .cols = cols, .data = w.bytes.data()};
  return w;
}

Mat<float> Product(const Mat<float>& x, const PackedMatrix& w, ThreadPool& pool,
                   const float* bias = nullptr) {
  Activations activations;
  activations.Set(x.View());
  Mat<float> y(x.rows(), w.rows());
  MatMul(activations, w, y.View(), pool, bias);
  return y;
}

// The product by definition, and for each element the sum of the products' magnitudes, which its
// rounding error is measured against.
struct Expected {
  Mat<float> y;
  Mat<float> magnitude;
  float tolerance;
};

Expected ReferenceProduct(const Mat<float>& x, const MatrixSource& w, const float* bias = nullptr) {
  Mat<float> seen(x.rows(), x.cols());
  if (IsFloat(w.dtype)) {
    std::copy_n(x.data(), x.rows() * x.cols(), seen.data());
  } else {
    reference::RoundActivations(x.View(), Info(w.dtype).block_size, seen.View());
  }
  // Where a min is a half, what it is multiplied with is rounded to one.
  const bool half_min = w.dtype == DType::kQ4_1 || w.dtype == DType::kQ5_1;
  Expected expected{Mat<float>(x.rows(), w.rows), Mat<float>(x.rows(), w.rows),
                    half_min ? 5e-4f : 5e-6f};
  reference::MatMul(seen.View(), w, bias, expected.y.View());

  Mat<float> weights(w.rows, w.cols);
  for (size_t r = 0; r < w.rows; ++r) DecodeRow(w.dtype, w.Row(r), w.cols, weights.Row(r));
  for (Mat<float>* mat : {&seen, &weights}) {
    for (size_t i = 0; i < mat->rows() * mat->cols(); ++i)
      mat->data()[i] = std::abs(mat->data()[i]);
  }
  const MatrixSource magnitudes{
      .rows = w.rows, .cols = w.cols, .data = reinterpret_cast<const std::byte*>(weights.data())};
  reference::MatMul(seen.View(), magnitudes, nullptr, expected.magnitude.View());
  return expected;
}

void ExpectClose(const Mat<float>& y, const Expected& expected, const std::string& what) {
  for (size_t i = 0; i < y.rows(); ++i) {
    for (size_t o = 0; o < y.cols(); ++o) {
      // A min is added per group, and may cancel what the products of the group gave: its rounding
      // is relative to a few times the magnitude.
      ASSERT_NEAR(y.Row(i)[o], expected.y.Row(i)[o],
                  expected.tolerance * expected.magnitude.Row(i)[o] + 1e-6f)
          << what << " at row " << i << ", output " << o;
    }
  }
}

class MatMulTest : public TargetTest {};
SPA_FOR_EACH_TARGET(MatMulTest);

TEST_P(MatMulTest, MatchesReferenceOnOddShapes) {
  ThreadPool pool(2);
  for (const DType dtype : kAllTypes) {
    const size_t block = Info(dtype).block_size;
    for (const size_t cols : {block, 3 * block, IsFloat(dtype) ? size_t{519} : size_t{1280}}) {
      for (const size_t rows : {1, 16, 37}) {
        const Weights w = RandomWeights(dtype, rows, cols, 1);
        const PackedMatrix packed(w.source, pool);
        for (const size_t m : {1, 2, 3, 4, 5, 6, 7, 13}) {
          const Mat<float> x = RandomMat(m, cols, 2);
          ExpectClose(Product(x, packed, pool), ReferenceProduct(x, w.source),
                      fmt::format("{} {}x{} m={}", Info(dtype).name, rows, cols, m));
        }
      }
    }
  }
}

TEST_P(MatMulTest, MatchesReferenceOverSeveralPartsAndBlocks) {
  ThreadPool pool(2);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K}) {
    const Weights w = RandomWeights(dtype, 100, 1536, 3);
    const PackedMatrix packed(w.source, pool);
    const Mat<float> x = RandomMat(101, 1536, 4);
    ExpectClose(Product(x, packed, pool), ReferenceProduct(x, w.source),
                std::string(Info(dtype).name));
  }
}

TEST_P(MatMulTest, ARowDoesNotDependOnTheRowsBesideIt) {
  ThreadPool pool(2);
  for (const DType dtype : kAllTypes) {
    const size_t cols = 768;
    const Weights w = RandomWeights(dtype, 40, cols, 5);
    const PackedMatrix packed(w.source, pool);
    const Mat<float> x = RandomMat(137, cols, 6);
    const Mat<float> together = Product(x, packed, pool);
    for (const size_t row : {0, 1, 5, 36, 100, 136}) {
      for (const size_t count : {1, 2, 3, 5, 8, 14}) {
        if (row + count > x.rows()) continue;
        Mat<float> some(count, cols);
        std::copy_n(x.Row(row), count * cols, some.data());
        const Mat<float> apart = Product(some, packed, pool);
        ASSERT_TRUE(SameBits(apart.data(), together.Row(row), count * w.source.rows))
            << Info(dtype).name << " row " << row << " among " << count;
      }
    }
  }
}

TEST_P(MatMulTest, TheThreadCountChangesNoBit) {
  ThreadPool one(1), two(2), three(3);
  for (const DType dtype : kAllTypes) {
    const Weights w = RandomWeights(dtype, 200, 512, 7);
    const PackedMatrix packed(w.source, one);
    const Mat<float> x = RandomMat(37, 512, 8);
    const Mat<float> y = Product(x, packed, one);
    EXPECT_TRUE(SameBits(y.data(), Product(x, packed, two).data(), 37 * 200)) << Info(dtype).name;
    EXPECT_TRUE(SameBits(y.data(), Product(x, packed, three).data(), 37 * 200)) << Info(dtype).name;
  }
}

TEST_P(MatMulTest, ExpertsTogetherAreEachAlone) {
  ThreadPool one(1), three(3);
  const uint32_t rows_of_expert[] = {0, 3, 1, 0, 130, 8, 5, 0};
  const size_t num_rows = 147, cols = 512;
  const Mat<float> x = RandomMat(num_rows, cols, 24);
  for (const DType dtype : kAllTypes) {
    std::vector<PackedMatrix> experts;
    for (uint32_t e = 0; e < 8; ++e) {
      experts.emplace_back(RandomWeights(dtype, 77, cols, 25 + e).source, one);
    }
    Activations activations;
    activations.SetExperts(x.View(), rows_of_expert);
    Mat<float> y(num_rows, 77);
    for (ThreadPool* pool : {&one, &three}) {
      y.Fill(-1.0f);
      MatMulExperts(activations, experts, y.View(), *pool);
      for (size_t e = 0, row = 0; e < 8; row += rows_of_expert[e++]) {
        Mat<float> alone(rows_of_expert[e], cols);
        std::copy_n(x.Row(row), rows_of_expert[e] * cols, alone.data());
        EXPECT_TRUE(SameBits(y.Row(row), Product(alone, experts[e], one).data(),
                             rows_of_expert[e] * size_t{77}))
            << Info(dtype).name << " expert " << e;
      }
    }
  }
}

TEST_P(MatMulTest, PackingKeepsEveryValue) {
  ThreadPool pool(2);
  for (const DType dtype : kAllTypes) {
    const size_t rows = 21, cols = 512;
    const Weights w = RandomWeights(dtype, rows, cols, 9);
    const PackedMatrix packed(w.source, pool);
    // 127 is kept by rounding to 8 bits, and its scale of 1 by rounding that.
    Mat<float> diagonal(cols, cols);
    diagonal.Fill(0.0f);
    for (size_t c = 0; c < cols; ++c) diagonal.Row(c)[c] = 127.0f;
    const Mat<float> y = Product(diagonal, packed, pool);
    std::vector<float> row(cols);
    for (size_t r = 0; r < rows; ++r) {
      DecodeRow(dtype, w.source.Row(r), cols, row.data());
      for (float& value : row) value *= 127.0f;
      const float largest = std::abs(*std::max_element(
          row.begin(), row.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
      for (size_t c = 0; c < cols; ++c) {
        if (IsFloat(dtype)) {
          ASSERT_EQ(y.Row(c)[r], row[c]) << Info(dtype).name << " " << r << "," << c;
        } else {  // scale * value + min, each rounded once
          ASSERT_NEAR(y.Row(c)[r], row[c], 3e-7f * largest)
              << Info(dtype).name << " " << r << "," << c;
        }
      }
    }
  }
}

TEST_P(MatMulTest, ExtremeValuesDoNotOverflow) {
  ThreadPool pool(1);
  for (const DType dtype : kAllTypes) {
    if (IsFloat(dtype)) continue;
    for (const int fill : {0x00, 0x80, 0xff, 0x0f, 0xf0, 0x7f}) {
      Weights w = RandomWeights(dtype, 16, 256, 10);
      for (size_t block = 0; block < w.bytes.size(); block += Info(dtype).block_bytes) {
        std::byte* bytes = w.bytes.data() + block;
        std::vector<std::byte> halves;
        for (const size_t f : HalfFields(dtype))
          halves.insert(halves.end(), bytes + f, bytes + f + 2);
        std::memset(bytes, fill, Info(dtype).block_bytes);
        const std::byte* half = halves.data();
        for (const size_t f : HalfFields(dtype)) {
          std::memcpy(bytes + f, half, 2);
          half += 2;
        }
      }
      const PackedMatrix packed(w.source, pool);
      Mat<float> x(4, 256);
      for (size_t c = 0; c < 256; ++c) {
        x.Row(0)[c] = 3.0f;
        x.Row(1)[c] = -3.0f;
        x.Row(2)[c] = c % 2 ? 3.0f : -3.0f;
        x.Row(3)[c] = c % 4 < 2 ? 3.0f : -3.0f;
      }
      ExpectClose(Product(x, packed, pool), ReferenceProduct(x, w.source),
                  fmt::format("{} of {:#x}", Info(dtype).name, fill));
    }
  }
}

TEST_P(MatMulTest, TinyAndZeroActivationsGiveZero) {
  ThreadPool pool(1);
  const Weights w = RandomWeights(DType::kQ4_0, 16, 64, 11);
  const PackedMatrix packed(w.source, pool);
  Mat<float> x(1, 64);
  for (const float value : {0.0f, 1e-38f, 1e-44f}) {
    x.Fill(value);
    const Mat<float> y = Product(x, packed, pool);
    for (size_t o = 0; o < 16; ++o) EXPECT_EQ(y.Row(0)[o], 0.0f);
  }
}

TEST_P(MatMulTest, BiasIsAdded) {
  ThreadPool pool(1);
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    const Weights w = RandomWeights(dtype, 19, 64, 12);
    const PackedMatrix packed(w.source, pool);
    const Mat<float> x = RandomMat(3, 64, 13);
    const Mat<float> bias = RandomMat(1, 19, 14);
    ExpectClose(Product(x, packed, pool, bias.data()), ReferenceProduct(x, w.source, bias.data()),
                "bias");
  }
}

// Integer sums are exact and scaled in one order, so targets differ only where they round: all of
// those with fused multiply-adds agree.
TEST(MatMul, TargetsWithFmaAgreeOnQuantisedWeights) {
  ThreadPool pool(2);
  for (const DType dtype : kAllTypes) {
    if (IsFloat(dtype)) continue;
    const Weights w = RandomWeights(dtype, 40, 768, 26);
    const PackedMatrix packed(w.source, pool);
    const Mat<float> x = RandomMat(21, 768, 27);
    Mat<float> first;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if ((target & (HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL)) == 0) continue;
      hwy::SetSupportedTargetsForTest(target);
      const Mat<float> y = Product(x, packed, pool);
      hwy::SetSupportedTargetsForTest(0);
      if (first.rows() == 0) {
        first.Resize(21, 40);
        std::copy_n(y.data(), 21 * 40, first.data());
      }
      EXPECT_TRUE(SameBits(first.data(), y.data(), 21 * 40))
          << Info(dtype).name << " " << hwy::TargetName(target);
    }
  }
}

#if SPA_EMULATES_AVX_VNNI
class AvxVnniTest : public testing::Test {
 protected:
  void SetUp() override {
    if ((HWY_TARGETS & hwy::SupportedTargets() & HWY_AVX2) == 0) GTEST_SKIP() << "no AVX2";
    hwy::SetSupportedTargetsForTest(HWY_AVX2);
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    SetAvxVnniForTest(processor_has_it_);
  }

  // The product with AVX-VNNI, emulated where the processor has none; the same bits as without it.
  Mat<float> ProductBothWays(const Mat<float>& x, const PackedMatrix& w, ThreadPool& pool,
                             const std::string& what) {
    SetAvxVnniForTest(false);
    const Mat<float> without = Product(x, w, pool);
    SetAvxVnniForTest(true);
    const AvxVnniEmulator emulator;
    Mat<float> y = Product(x, w, pool);
    // Each takes 4 inputs of 8 channels.
    const size_t num_products = x.rows() * (w.cols() / 4) * ((w.rows() + 15) / 16 * 2);
    EXPECT_EQ(emulator.num_caught(), processor_has_it_ ? 0 : num_products) << what;
    EXPECT_TRUE(SameBits(without.data(), y.data(), x.rows() * w.rows())) << what;
    return y;
  }

 private:
  const bool processor_has_it_ = HasAvxVnni();
};

TEST_F(AvxVnniTest, GivesTheBitsOfAvx2) {
  ThreadPool pool(2);
  for (const DType dtype : kAllTypes) {
    if (IsFloat(dtype)) continue;
    for (const size_t m : {1, 2, 3, 4, 7, 13}) {
      const size_t cols = m == 3 ? 1280 : 256;  // few: a caught instruction takes microseconds
      const Weights w = RandomWeights(dtype, 21, cols, 28);
      const Mat<float> x = RandomMat(m, cols, 29);
      const std::string what = fmt::format("{} m={}", Info(dtype).name, m);
      ExpectClose(ProductBothWays(x, PackedMatrix(w.source, pool), pool, what),
                  ReferenceProduct(x, w.source), what);
    }
  }
}

TEST_F(AvxVnniTest, IsNamed) {
  SetAvxVnniForTest(true);
  EXPECT_EQ(FindSimdTargets().used, "AVX2 with VNNI");
  SetAvxVnniForTest(false);
  EXPECT_EQ(FindSimdTargets().used, "AVX2");
}
#endif

#if SPA_EMULATES_AMX
class AmxTest : public TargetTest {
 protected:
  void TearDown() override {
    TargetTest::TearDown();
    SetAmxForTest(process_has_it_);
  }
  const bool process_has_it_ = HasAmx();
};
SPA_FOR_EACH_TARGET(AmxTest);

// Other targets do not use tiles.
TEST_P(AmxTest, GivesTheBitsOfVnni) {
  ThreadPool pool(2);
  for (const DType dtype : kAllTypes) {
    if (IsFloat(dtype)) continue;
    for (const size_t m : {16, 17, 24, 31, 40, 215}) {
      const size_t cols = m == 17 ? 1280 : 256;
      const Weights w = RandomWeights(dtype, 21, cols, 30);
      const PackedMatrix packed(w.source, pool);
      const Mat<float> x = RandomMat(m, cols, 31);
      const std::string what = fmt::format("{} m={}", Info(dtype).name, m);
      SetAmxForTest(false);
      const Mat<float> without = Product(x, packed, pool);
      SetAmxForTest(true);
      const AmxEmulator emulator;
      const Mat<float> y = Product(x, packed, pool);
      EXPECT_TRUE(SameBits(without.data(), y.data(), m * 21)) << what;
      // 16 rows are few, and the sums of Q6_K go over half a group.
      const bool uses_tiles = GetParam() == HWY_AVX3_DL && m > 16 && dtype != DType::kQ6_K;
      EXPECT_EQ(emulator.num_caught() > 0, uses_tiles && !process_has_it_) << what;
    }
  }
}

TEST_P(AmxTest, IsNamed) {
  SetAmxForTest(true);
  EXPECT_EQ(FindSimdTargets().used.ends_with(" with AMX"), GetParam() == HWY_AVX3_DL);
  SetAmxForTest(false);
  EXPECT_FALSE(FindSimdTargets().used.ends_with(" with AMX"));
}
#endif

TEST(MatMul, ReadsRowsInTheGivenOrder) {
  ThreadPool pool(1);
  Weights w = RandomWeights(DType::kQ4_K, 20, 256, 15);
  std::vector<uint32_t> order = AllRows(20);
  std::reverse(order.begin(), order.end());
  w.source.row_order = order;
  const Mat<float> x = RandomMat(3, 256, 16);
  ExpectClose(Product(x, PackedMatrix(w.source, pool), pool), ReferenceProduct(x, w.source),
              "order");
}

TEST(MatMul, ReadsAndWritesStridedViews) {
  ThreadPool pool(1);
  const Weights w = RandomWeights(DType::kQ4_0, 20, 64, 17);
  const PackedMatrix packed(w.source, pool);
  const Mat<float> x = RandomMat(5, 100, 18);
  Mat<float> y(5, 33);
  y.Fill(7.0f);
  Activations activations;
  activations.Set({x.data(), 5, 64, 100});
  MatMul(activations, packed, {y.data(), 5, 20, 33}, pool);
  Mat<float> dense(5, 64);
  for (size_t i = 0; i < 5; ++i) std::copy_n(x.Row(i), 64, dense.Row(i));
  const Mat<float> expected = Product(dense, packed, pool);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(SameBits(y.Row(i), expected.Row(i), 20));
    for (size_t c = 20; c < 33; ++c) EXPECT_EQ(y.Row(i)[c], 7.0f);
  }
}

TEST(MatMul, NoRowsIsNoWork) {
  ThreadPool pool(2);
  const Weights w = RandomWeights(DType::kQ4_0, 20, 64, 19);
  EXPECT_EQ(Product(Mat<float>(0, 64), PackedMatrix(w.source, pool), pool).rows(), 0u);
}

TEST(MatMul, SetForgetsTheQuantisedRows) {
  ThreadPool pool(1);
  const Weights w = RandomWeights(DType::kQ8_0, 16, 64, 20);
  const PackedMatrix packed(w.source, pool);
  const Mat<float> a = RandomMat(2, 64, 21), b = RandomMat(2, 64, 22);
  Activations activations;
  Mat<float> y(2, 16);
  for (const Mat<float>* x : {&a, &b}) {
    activations.Set(x->View());
    MatMul(activations, packed, y.View(), pool);
  }
  EXPECT_TRUE(SameBits(y.data(), Product(b, packed, pool).data(), 32));
}

TEST(MatMul, PackedWeightsStayNearTheirStoredSize) {
  ThreadPool pool(1);
  const auto ratio = [&](DType dtype) {
    const Weights w = RandomWeights(dtype, 64, 1024, 23);
    return static_cast<double>(PackedMatrix(w.source, pool).bytes()) /
           static_cast<double>(w.bytes.size());
  };
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                            DType::kQ4_K, DType::kQ8_0}) {
    EXPECT_LT(ratio(dtype), 1.05) << Info(dtype).name;
  }
}

}  // namespace
}  // namespace spa
