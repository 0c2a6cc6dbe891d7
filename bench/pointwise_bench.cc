// The element-wise kernels, beside the bandwidth of plain reads.
#include <numeric>
#include <vector>

#include "bench/yardstick.h"
#include "kernels/logit_stats.h"
#include "kernels/pointwise.h"
#include "kernels/rows.h"

namespace spa {
namespace {

constexpr size_t kRows = 512, kDim = 4096, kFfn = 12288, kVocab = 126464;

std::vector<uint32_t> Indices(size_t n) {
  std::vector<uint32_t> rows(n);
  std::iota(rows.begin(), rows.end(), 0u);
  return rows;
}

void RmsNormBench(benchmark::State& state) {
  const Mat<float> x = Filled(kRows, kDim), gain = Filled(1, kDim);
  const std::vector<uint32_t> rows = Indices(kRows);
  Mat<float> y(kRows, kDim);
  RunAndCompare(state, 0.0, 2.0 * kRows * kDim * sizeof(float),
                [&] { RmsNorm(x.View(), rows, gain.data(), 1e-5f, y.View(), BenchPool()); });
}
BENCHMARK(RmsNormBench)->UseRealTime();

void RopeBench(benchmark::State& state) {
  Mat<float> x = Filled(kRows, kDim);
  const RopeTable table(kRows, 128, 500000.0);
  const std::vector<uint32_t> positions = Indices(kRows);
  RunAndCompare(state, 0.0, 2.0 * kRows * kDim * sizeof(float),
                [&] { Rope(x.View(), positions, 128, table, BenchPool()); });
}
BENCHMARK(RopeBench)->UseRealTime();

void SwiGluBench(benchmark::State& state) {
  const Mat<float> up = Filled(kRows, kFfn);
  Mat<float> gate = Filled(kRows, kFfn);
  RunAndCompare(state, 0.0, 3.0 * kRows * kFfn * sizeof(float),
                [&] { SwiGlu(gate.View(), up.View(), BenchPool()); });
}
BENCHMARK(SwiGluBench)->UseRealTime();

void CosineBench(benchmark::State& state) {
  const Mat<float> a = Filled(kRows, 128), b = Filled(kRows, 128);
  const std::vector<uint32_t> rows = Indices(kRows);
  std::vector<float> out(kRows);
  RunAndCompare(state, 0.0, 2.0 * kRows * 128 * sizeof(float),
                [&] { CosineRows(a.View(), b.View(), rows, out, BenchPool()); });
}
BENCHMARK(CosineBench)->UseRealTime();

void LogitStatsBench(benchmark::State& state) {
  const Mat<float> logits = Filled(1, kVocab);
  RunAndCompare(state, 0.0, kVocab * sizeof(float), [&] {
    benchmark::DoNotOptimize(ComputeLogitStats({logits.data(), kVocab}));
  });
}
BENCHMARK(LogitStatsBench)->UseRealTime();

}  // namespace
}  // namespace spa
