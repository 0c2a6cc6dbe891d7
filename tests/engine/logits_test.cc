// The engine's logits against llama.cpp's, on random-weight models of both architectures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <vector>

#include "engine/engine.h"

namespace spa {
namespace {

std::vector<TokenId> ReadIds(const std::string& path) {
  std::ifstream in(path);
  return {std::istream_iterator<TokenId>(in), {}};
}

struct Difference {
  double rms = 0.0;      // of the logits' standard deviation
  double worst = 0.0;
  double argmax = 0.0;   // share of rows with the same largest logit
};

Difference Compare(const std::string& model, const std::string& golden, const std::string& ids_file) {
  Engine engine({.model = model, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
  const std::vector<TokenId> ids = ReadIds(ids_file);
  const size_t vocab = engine.config().vocab_rows;
  std::vector<float> expected(ids.size() * vocab), actual(expected.size());
  std::ifstream in(golden, std::ios::binary);
  in.read(reinterpret_cast<char*>(expected.data()),
          static_cast<std::streamsize>(expected.size() * sizeof(float)));
  EXPECT_EQ(static_cast<size_t>(in.gcount()), expected.size() * sizeof(float));
  engine.DenseLogits(ids, [&](size_t row, std::span<const float> logits) {
    std::ranges::copy(logits, actual.begin() + static_cast<ptrdiff_t>(row * vocab));
  });
  double mean = 0.0, square = 0.0, error = 0.0;
  Difference difference;
  for (size_t i = 0; i < expected.size(); ++i) {
    mean += expected[i];
    square += static_cast<double>(expected[i]) * expected[i];
    const double d = std::abs(static_cast<double>(expected[i]) - actual[i]);
    error += d * d;
    difference.worst = std::max(difference.worst, d);
  }
  const auto n = static_cast<double>(expected.size());
  const double deviation = std::sqrt(square / n - mean / n * (mean / n));
  difference.rms = std::sqrt(error / n) / deviation;
  difference.worst /= deviation;
  for (size_t row = 0; row < ids.size(); ++row) {
    const auto largest = [&](const std::vector<float>& logits) {
      const auto begin = logits.begin() + static_cast<ptrdiff_t>(row * vocab);
      return std::max_element(begin, begin + static_cast<ptrdiff_t>(vocab)) - begin;
    };
    difference.argmax += largest(expected) == largest(actual) ? 1.0 : 0.0;
  }
  difference.argmax /= static_cast<double>(ids.size());
  return difference;
}

TEST(Logits, QuantisedModelsMatchLlamaCpp) {
  const std::string data = SPA_TEST_DATA "/";
  // Activations are quantised as llama.cpp quantises them, so Q4_K agrees to rounding.
  const Difference q4 = Compare(data + "tiny-llada-Q4_K.gguf", data + "tiny-llada-Q4_K.logits.f32",
                                data + "tiny-ids.txt");
  EXPECT_LT(q4.worst, 1e-3);
  EXPECT_EQ(q4.argmax, 1.0);
  // Here llama.cpp's own path differs; what remains is the size of 8-bit rounding.
  const Difference q6 = Compare(data + "tiny-dream-Q6_K.gguf", data + "tiny-dream-Q6_K.logits.f32",
                                data + "tiny-ids.txt");
  EXPECT_LT(q6.rms, 5e-2);
  EXPECT_GT(q6.argmax, 0.9);
}

TEST(Logits, FloatModelsMatchLlamaCpp) {
  const std::filesystem::path golden = SPA_SHARED_DIR "/golden";
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << "the float goldens are not in a clone";
  for (const char* name : {"tiny-llada-F32", "tiny-dream-F32"}) {
    const std::string base = (golden / name).string();
    const Difference d =
        Compare(base + ".gguf", base + ".logits.f32", (golden / "ids.txt").string());
    EXPECT_LT(d.worst, 2e-4) << name;
    EXPECT_EQ(d.argmax, 1.0) << name;
  }
}

}  // namespace
}  // namespace spa
