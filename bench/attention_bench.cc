// Attention of m queries over 1280 keys, 32 heads of 128.
#include <numeric>
#include <vector>

#include "bench/yardstick.h"
#include "kernels/attention.h"

namespace spa {
namespace {

void AttentionBench(benchmark::State& state, KvType type, size_t num_kv_heads) {
  constexpr size_t kHeads = 32, kHeadDim = 128, kKeys = 1280;
  const size_t m = static_cast<size_t>(state.range(0));
  const Mat<float> q = Filled(m, kHeads * kHeadDim);
  const Mat<float> rows_of_kv = Filled(kKeys, num_kv_heads * kHeadDim);
  Mat<float> out(m, kHeads * kHeadDim);
  KvCache kv(kKeys, num_kv_heads, kHeadDim, type);
  std::vector<uint32_t> rows(kKeys);
  std::iota(rows.begin(), rows.end(), 0u);
  kv.StoreKeys(rows, rows_of_kv.View(), BenchPool());
  kv.StoreValues(rows, rows_of_kv.View(), BenchPool());
  const AttentionJob job{.q = q.View(), .kv = &kv, .out = out.View()};
  RunAndCompare(state, 4.0 * static_cast<double>(m * kKeys * kHeads * kHeadDim), 0.0, [&] {
    Attend({&job, 1}, kHeads, BenchPool());
  });
}

const bool registered = [] {
  const std::pair<const char*, KvType> types[] = {{"F32", KvType::kF32},
                                                  {"F16", KvType::kF16},
                                                  {"BF16", KvType::kBF16},
                                                  {"F16-Q8", KvType::kF16Q8}};
  for (const auto& [name, type] : types) {
    for (const size_t num_kv_heads : {32, 4}) {
      auto* bench = benchmark::RegisterBenchmark(
          (std::string("attention/") + name + "/kv_heads:" + std::to_string(num_kv_heads)).c_str(),
          AttentionBench, type, num_kv_heads);
      bench->UseRealTime()->MinTime(0.3)->ArgName("m")->Arg(8)->Arg(64)->Arg(1280);
    }
  }
  return true;
}();

}  // namespace
}  // namespace spa
