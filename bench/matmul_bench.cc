// Products at the shapes of LLaDA-8B's feed-forward layers, by type and number of rows.
#include <string>
#include <utility>
#include <vector>

#include "bench/yardstick.h"
#include "kernels/block_codec.h"
#include "kernels/matmul.h"

namespace spa {
namespace {

std::vector<std::byte> StoredWeights(DType dtype, size_t rows, size_t cols) {
  const size_t row_bytes = RowBytes(dtype, cols);
  std::vector<std::byte> bytes(rows * row_bytes);
  const Mat<float> row = Filled(1, cols);
  if (CanEncode(dtype)) {
    EncodeRow(dtype, row.data(), cols, bytes.data());
  } else {  // the speed does not depend on the values; these make small, finite scales
    std::fill_n(bytes.begin(), row_bytes, std::byte{0x11});
  }
  for (size_t r = 1; r < rows; ++r) std::copy_n(bytes.begin(), row_bytes, &bytes[r * row_bytes]);
  return bytes;
}

// Packing the same matrix for every row count would take longer than measuring it.
const PackedMatrix& Weights(DType dtype, size_t rows, size_t cols) {
  static std::pair<std::pair<DType, size_t>, PackedMatrix> last;
  if (last.second.rows() != rows || last.first != std::pair(dtype, cols)) {
    const std::vector<std::byte> bytes = StoredWeights(dtype, rows, cols);
    last.second = PackedMatrix({.dtype = dtype, .rows = rows, .cols = cols, .data = bytes.data()},
                               BenchPool());
    last.first = {dtype, cols};
  }
  return last.second;
}

void MatMulBench(benchmark::State& state, DType dtype, size_t cols, size_t rows) {
  const size_t m = static_cast<size_t>(state.range(0));
  const PackedMatrix& w = Weights(dtype, rows, cols);
  const Mat<float> x = Filled(m, cols);
  Mat<float> y(m, rows);
  Activations activations;
  RunAndCompare(state, 2.0 * static_cast<double>(m * rows * cols),
                m <= 4 ? static_cast<double>(w.bytes()) : 0.0, [&] {
                  activations.Set(x.View());
                  MatMul(activations, w, y.View(), BenchPool());
                });
}

// The up products of LLaDA-MoE: m rows for each of 64 experts, all at once or one after the other.
void ExpertsBench(benchmark::State& state, DType dtype, bool at_once) {
  constexpr size_t kExperts = 64, kCols = 2048, kRows = 1024;
  const size_t m = static_cast<size_t>(state.range(0));
  const std::vector<std::byte> bytes = StoredWeights(dtype, kRows, kCols);
  std::vector<PackedMatrix> experts;
  for (size_t e = 0; e < kExperts; ++e) {
    experts.emplace_back(
        MatrixSource{.dtype = dtype, .rows = kRows, .cols = kCols, .data = bytes.data()},
        BenchPool());
  }
  const std::vector<uint32_t> rows_of_expert(kExperts, static_cast<uint32_t>(m));
  const Mat<float> x = Filled(kExperts * m, kCols);
  Mat<float> y(kExperts * m, kRows);
  Activations activations;
  RunAndCompare(state, 2.0 * static_cast<double>(kExperts * m * kRows * kCols), 0.0, [&] {
    if (at_once) {
      activations.SetExperts(x.View(), rows_of_expert);
      MatMulExperts(activations, experts, y.View(), BenchPool());
      return;
    }
    for (size_t e = 0; e < kExperts; ++e) {
      activations.Set(x.View().Rows(e * m, m));
      MatMul(activations, experts[e], y.View().Rows(e * m, m), BenchPool());
    }
  });
}

void PackBench(benchmark::State& state, DType dtype) {
  const std::vector<std::byte> bytes = StoredWeights(dtype, 4096, 4096);
  RunAndCompare(state, 0.0, static_cast<double>(bytes.size()), [&] {
    const PackedMatrix w({.dtype = dtype, .rows = 4096, .cols = 4096, .data = bytes.data()},
                         BenchPool());
    benchmark::DoNotOptimize(w.bytes());
  });
}

const bool registered = [] {
  for (const DType dtype :
       {DType::kQ4_0, DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kF32, DType::kBF16}) {
    const std::string name(Info(dtype).name);
    for (const auto& [cols, rows] : {std::pair<size_t, size_t>{4096, 12288}, {12288, 4096}}) {
      auto* bench = benchmark::RegisterBenchmark(
          ("matmul/" + name + "/" + std::to_string(cols) + "x" + std::to_string(rows)).c_str(),
          MatMulBench, dtype, cols, rows);
      bench->UseRealTime()->MinTime(0.3)->ArgName("m");
      for (const int m : {1, 2, 4, 5, 8, 16, 32, 41, 64, 128, 512}) bench->Arg(m);
    }
    benchmark::RegisterBenchmark(("pack/" + name).c_str(), PackBench, dtype)->UseRealTime();
  }
  for (const bool at_once : {true, false}) {
    auto* bench =
        benchmark::RegisterBenchmark(at_once ? "experts/Q4_0/at_once" : "experts/Q4_0/one_by_one",
                                     ExpertsBench, DType::kQ4_0, at_once);
    bench->UseRealTime()->MinTime(0.3)->ArgName("m");
    for (const int m : {1, 2, 4, 8, 16, 32}) bench->Arg(m);
  }
  return true;
}();

}  // namespace
}  // namespace spa
