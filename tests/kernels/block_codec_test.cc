#include "kernels/block_codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace spa {
namespace {

std::vector<float> Decode(DType dtype, const std::vector<std::byte>& bytes, size_t cols) {
  std::vector<float> values(cols);
  DecodeRow(dtype, bytes.data(), cols, values.data());
  return values;
}

std::vector<std::byte> Encode(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> bytes(RowBytes(dtype, values.size()));
  EncodeRow(dtype, values.data(), values.size(), bytes.data());
  return bytes;
}

std::vector<float> RoundTrip(DType dtype, const std::vector<float>& values) {
  return Decode(dtype, Encode(dtype, values), values.size());
}

std::vector<float> Gaussian(size_t count, float deviation, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& v : values) v = normal(engine);
  return values;
}

// Root of the mean squared error over the root of the mean square.
double RelativeError(const std::vector<float>& expected, const std::vector<float>& got) {
  double error = 0.0;
  double power = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(double{expected[i]} - double{got[i]}, 2);
    power += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(error / power);
}

// One block of each type: d = 0.125, the minimum 0.0625, byte i of the rest (37 i + 11) mod 256.
// The expected values were computed outside this project.
struct Vector {
  DType dtype;
  std::vector<size_t> halves;  // offsets of d and, where there is one, the minimum
  double y0, y1, y17, y31, last, sum, weighted_sum;
};

class ConformanceTest : public testing::TestWithParam<Vector> {};

TEST_P(ConformanceTest, DecodesThePublishedVector) {
  const Vector& v = GetParam();
  std::vector<std::byte> block(Info(v.dtype).block_bytes);
  std::vector<bool> is_half(block.size(), false);
  for (size_t i = 0; i < v.halves.size(); ++i) {
    block[v.halves[i]] = std::byte{0};
    block[v.halves[i] + 1] = i == 0 ? std::byte{0x30} : std::byte{0x2c};
    is_half[v.halves[i]] = is_half[v.halves[i] + 1] = true;
  }
  size_t count = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    if (!is_half[i]) block[i] = static_cast<std::byte>((37 * count++ + 11) % 256);
  }
  const std::vector<float> y = Decode(v.dtype, block, Info(v.dtype).block_size);
  EXPECT_EQ(y[0], v.y0);
  EXPECT_EQ(y[1], v.y1);
  EXPECT_EQ(y[17], v.y17);
  EXPECT_EQ(y[31], v.y31);
  EXPECT_EQ(y.back(), v.last);
  double sum = 0.0;
  double weighted_sum = 0.0;
  for (size_t e = 0; e < y.size(); ++e) {
    sum += y[e];
    weighted_sum += static_cast<double>(e + 1) * y[e];
  }
  EXPECT_EQ(sum, v.sum);
  EXPECT_EQ(weighted_sum, v.weighted_sum);
}

INSTANTIATE_TEST_SUITE_P(
    BlockCodec, ConformanceTest,
    testing::Values(
        Vector{DType::kQ8_0, {0}, 1.375, 6.0, -16.0, -15.25, -15.25, 2.0, -486.0},
        Vector{DType::kQ4_0, {0}, 0.375, -1.0, -0.625, -0.625, -0.625, -3.875, -75.875},
        Vector{DType::kQ4_1, {0, 2}, 1.4375, 0.0625, 0.4375, 0.4375, 0.4375, 30.125, 485.125},
        Vector{DType::kQ5_0, {0}, 1.875, 0.5, -0.5, -0.5, -0.5, -5.375, -42.125},
        Vector{DType::kQ5_1, {0, 2}, 3.9375, 2.5625, 1.5625, 1.5625, 1.5625, 60.625, 1046.875},
        Vector{DType::kQ4_K, {0, 2}, 7.6875, 14.5625, 14.5625, 0.8125, 3.875, 5563.0, 641656.0},
        Vector{DType::kQ5_K, {0, 2}, 29.6875, 14.5625, 14.5625, 0.8125, 26.375, 11541.0, 1337074.0},
        Vector{DType::kQ6_K, {208}, -178.875, 212.0, 64.0, -12.0, -7.5, 576.5, 98052.5}),
    [](const auto& test) { return std::string(Info(test.param.dtype).name); });

uint16_t Bits16(const std::vector<std::byte>& bytes) {
  return static_cast<uint16_t>(std::to_integer<int>(bytes[0]) |
                               (std::to_integer<int>(bytes[1]) << 8));
}

uint16_t EncodeF16(float value) { return Bits16(Encode(DType::kF16, {value})); }
uint16_t EncodeBf16(float value) { return Bits16(Encode(DType::kBF16, {value})); }

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Sign, exponent and mantissa by the book.
double HalfValue(uint16_t half) {
  const double sign = half & 0x8000 ? -1.0 : 1.0;
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  if (exponent == 31) return mantissa != 0 ? kNan : sign * kInfinity;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(BlockCodec, EveryHalfDecodesExactlyAndEncodesBack) {
  for (uint32_t half = 0; half < 65536; ++half) {
    const std::vector<std::byte> bytes = {static_cast<std::byte>(half & 255),
                                          static_cast<std::byte>(half >> 8)};
    const float value = Decode(DType::kF16, bytes, 1)[0];
    const double expected = HalfValue(static_cast<uint16_t>(half));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << half;
      ASSERT_TRUE(std::isnan(HalfValue(EncodeF16(value)))) << half;
    } else {
      ASSERT_EQ(value, expected) << half;
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << half;
      ASSERT_EQ(EncodeF16(value), half);
    }
  }
}

TEST(BlockCodec, F16RoundsToTheNearestAndTiesToEven) {
  for (uint16_t half = 0; half < 0x7bff; ++half) {  // all finite neighbours, subnormals included
    const float low = static_cast<float>(HalfValue(half));
    const float high = static_cast<float>(HalfValue(half + 1));
    const float middle = (low + high) / 2;  // exact
    const uint16_t even = half % 2 == 0 ? half : static_cast<uint16_t>(half + 1);
    ASSERT_EQ(EncodeF16(middle), even);
    ASSERT_EQ(EncodeF16(-middle), even | 0x8000);
    ASSERT_EQ(EncodeF16(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(EncodeF16(std::nextafter(middle, kInfinity)), half + 1);
  }
}

TEST(BlockCodec, F16HandlesTheEndsOfTheRange) {
  EXPECT_EQ(EncodeF16(65504.0f), 0x7bff);
  EXPECT_EQ(EncodeF16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(EncodeF16(65520.0f), 0x7c00);
  EXPECT_EQ(EncodeF16(-1e30f), 0xfc00);
  EXPECT_EQ(EncodeF16(kInfinity), 0x7c00);
  EXPECT_EQ(EncodeF16(0x1p-25f), 0x0000);
  EXPECT_EQ(EncodeF16(std::nextafter(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(EncodeF16(-0.0f), 0x8000);
  EXPECT_EQ(EncodeF16(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_TRUE(std::isnan(HalfValue(EncodeF16(kNan))));
  // A NaN whose payload lies only in the bits that are cut off.
  EXPECT_TRUE(std::isnan(HalfValue(EncodeF16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(BlockCodec, Bf16RoundsToTheNearestAndTiesToEven) {
  for (uint32_t high = 0; high < 0x7f80; ++high) {  // all finite, subnormals included
    const uint32_t bits = high << 16;
    ASSERT_EQ(EncodeBf16(std::bit_cast<float>(bits)), high);
    ASSERT_EQ(EncodeBf16(std::bit_cast<float>(bits | 0x7fff)), high);
    ASSERT_EQ(EncodeBf16(std::bit_cast<float>(bits | 0x8000)), high + high % 2);
    ASSERT_EQ(EncodeBf16(std::bit_cast<float>(bits | 0x8001)), high + 1);
    const std::vector<std::byte> bytes = Encode(DType::kBF16, {std::bit_cast<float>(bits)});
    ASSERT_EQ(Decode(DType::kBF16, bytes, 1)[0], std::bit_cast<float>(bits));
  }
  EXPECT_EQ(EncodeBf16(kInfinity), 0x7f80);
  EXPECT_EQ(EncodeBf16(-kInfinity), 0xff80);
  EXPECT_EQ(EncodeBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(EncodeBf16(kNan) & 0x7fc0, 0x7fc0);
  EXPECT_EQ(EncodeBf16(std::bit_cast<float>(0x7f800001u)) & 0x7fc0, 0x7fc0);
}

TEST(BlockCodec, Q8_0FollowsItsRule) {
  std::vector<float> values(32, 0.0f);
  values[3] = -127.0f;  // d = 1
  values[4] = 2.5f;     // half away from zero
  values[5] = -2.5f;
  values[6] = 0.49f;
  const std::vector<std::byte> bytes = Encode(DType::kQ8_0, values);
  EXPECT_EQ(Bits16(bytes), 0x3c00);
  const std::vector<float> decoded = Decode(DType::kQ8_0, bytes, 32);
  EXPECT_EQ(decoded[3], -127.0f);
  EXPECT_EQ(decoded[4], 3.0f);
  EXPECT_EQ(decoded[5], -3.0f);
  EXPECT_EQ(decoded[6], 0.0f);
}

TEST(BlockCodec, Q4_0FollowsItsRule) {
  std::vector<float> values(32, 0.0f);
  values[0] = 8.0f;  // the extreme element becomes -8, so d = -1
  values[17] = -8.0f;
  values[1] = -1.5f;  // trunc(1.5 + 8.5) = 10 -> -2
  values[2] = 1.5f;   // trunc(-1.5 + 8.5) = 7 -> 1
  const std::vector<std::byte> bytes = Encode(DType::kQ4_0, values);
  EXPECT_EQ(Bits16(bytes), 0xbc00);
  const std::vector<float> decoded = Decode(DType::kQ4_0, bytes, 32);
  EXPECT_EQ(decoded[0], 8.0f);
  EXPECT_EQ(decoded[17], -7.0f);  // clipped: 15 is the largest nibble
  EXPECT_EQ(decoded[1], -2.0f);
  EXPECT_EQ(decoded[2], 1.0f);
  EXPECT_EQ(decoded[3], 0.0f);
}

// The bounds for K-quants are the errors of ggml's encoder on the same kind of data, rounded up at
// the third digit: Gaussian weights 0.0713 (Q4_K) and 0.0178 (Q6_K), Student t with 4 degrees of
// freedom 0.0866 and 0.0229.
TEST(BlockCodec, EncodersAreAsPreciseAsGgml) {
  const std::vector<float> gaussian = Gaussian(1 << 16, 0.02f, 1);
  EXPECT_LT(RelativeError(gaussian, RoundTrip(DType::kQ8_0, gaussian)), 0.0055);
  EXPECT_LT(RelativeError(gaussian, RoundTrip(DType::kQ4_0, gaussian)), 0.087);
  EXPECT_LT(RelativeError(gaussian, RoundTrip(DType::kQ4_K, gaussian)), 0.0714);
  EXPECT_LT(RelativeError(gaussian, RoundTrip(DType::kQ6_K, gaussian)), 0.0178);

  std::mt19937 engine(2);
  std::student_t_distribution<float> student(4.0f);
  std::vector<float> heavy(1 << 16);
  for (float& v : heavy) v = 0.02f * student(engine);
  EXPECT_LT(RelativeError(heavy, RoundTrip(DType::kQ4_K, heavy)), 0.087);
  EXPECT_LT(RelativeError(heavy, RoundTrip(DType::kQ6_K, heavy)), 0.023);
}

TEST(BlockCodec, KQuantsKeepTheirPrecisionForSmallWeights) {
  for (const float deviation : {0.003f, 0.1f, 10.0f, 1000.0f}) {  // half-precision factors
    const std::vector<float> values = Gaussian(1 << 14, deviation, 3);
    EXPECT_LT(RelativeError(values, RoundTrip(DType::kQ4_K, values)), 0.072) << deviation;
    EXPECT_LT(RelativeError(values, RoundTrip(DType::kQ6_K, values)), 0.0178) << deviation;
  }
}

TEST(BlockCodec, KQuantsUseTheMinimumForOneSidedData) {
  std::vector<float> values = Gaussian(1 << 12, 0.1f, 4);
  for (float& v : values) v -= 1.0f;
  // Without a minimum the grid would start at 0 and the error be above 0.02.
  EXPECT_LT(RelativeError(values, RoundTrip(DType::kQ4_K, values)), 0.01);
  for (float& v : values) v = -v;
  EXPECT_LT(RelativeError(values, RoundTrip(DType::kQ4_K, values)), 0.022);
}

TEST(BlockCodec, EncodingAgainChangesLittle) {
  const std::vector<float> values = Gaussian(1 << 14, 0.02f, 5);
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K}) {
    const std::vector<float> once = RoundTrip(dtype, values);
    const double first = RelativeError(values, once);
    EXPECT_LT(RelativeError(once, RoundTrip(dtype, once)), 0.35 * first) << Info(dtype).name;
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::vector<float> once = RoundTrip(dtype, values);
    EXPECT_EQ(RoundTrip(dtype, once), once);
  }
}

TEST(BlockCodec, EncodingIsDeterministicAndRowsAreIndependent) {
  const std::vector<float> values = Gaussian(1024, 0.02f, 6);
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K}) {
    const std::vector<std::byte> whole = Encode(dtype, values);
    EXPECT_EQ(Encode(dtype, values), whole);
    const std::vector<std::byte> part = Encode(dtype, {values.begin() + 256, values.begin() + 512});
    const size_t bytes = RowBytes(dtype, 256);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<long>(bytes)));
  }
}

TEST(BlockCodec, ZerosAndConstantsSurvive) {
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K}) {
    const std::vector<float> zeros(256, 0.0f);
    EXPECT_EQ(RoundTrip(dtype, zeros), zeros) << Info(dtype).name;
    for (const float constant : {-3.0f, 0.7f}) {
      const std::vector<float> values(256, constant);
      EXPECT_LT(RelativeError(values, RoundTrip(dtype, values)), 1e-3) << Info(dtype).name;
    }
  }
}

TEST(BlockCodec, ExtremeInputGivesFiniteNeighbours) {
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K}) {
    for (const float odd : {kNan, kInfinity, -kInfinity, std::numeric_limits<float>::max(), 1e-42f,
                            std::numeric_limits<float>::denorm_min(), -1e-30f}) {
      std::vector<float> values = Gaussian(512, 1.0f, 7);
      values[5] = odd;
      values[300] = odd;
      for (const float v : RoundTrip(dtype, values)) ASSERT_TRUE(std::isfinite(v));
      for (const float v : RoundTrip(dtype, std::vector<float>(256, odd))) {
        ASSERT_TRUE(std::isfinite(v)) << Info(dtype).name << ' ' << odd;
      }
    }
  }
}

TEST(BlockCodec, AnyBytesDecode) {
  std::mt19937 engine(8);
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                            DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    std::vector<std::byte> bytes(RowBytes(dtype, 4096));
    for (std::byte& b : bytes) b = static_cast<std::byte>(engine());
    Decode(dtype, bytes, 4096);
  }
}

TEST(BlockCodec, KnowsWhatItCanEncode) {
  EXPECT_TRUE(CanEncode(DType::kQ4_K));
  EXPECT_TRUE(CanEncode(DType::kF32));
  EXPECT_FALSE(CanEncode(DType::kQ5_K));
  EXPECT_FALSE(CanEncode(DType::kQ4_1));
}

}  // namespace
}  // namespace spa
