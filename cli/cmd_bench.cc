// spa bench: time per phase of a step, and how close each kernel gets to the machine's limit.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "base/error.h"
#include "base/random.h"
#include "cli/bench_race.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "engine/memory.h"
#include "engine/runner.h"
#include "kernels/attention.h"
#include "kernels/block_codec.h"
#include "kernels/matmul.h"
#include "kernels/peak.h"
#include "writer/write_model.h"

namespace spa::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Flags {
  ModelFlags model;
  std::string shape, type = "Q4_0", caches = "none,spa";
  size_t layers = 4, prompt = 256, gen = 256, block = 32, steps = 8, repeat = 3, parallel = 1;
  std::optional<size_t> window;
  bool kernels = false, warm = false, json = false;
  RaceFlags race;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// On a shared machine the best of several runs is the least disturbed one. Short runs are repeated
// more often.
template <typename Fn>
double BestSeconds(size_t repeat, const Fn& fn) {
  constexpr double kLeastSeconds = 0.03;  // for each run asked for
  const auto begin = Clock::now();
  double best = 1e300;
  for (size_t i = 0;
       i < repeat || SecondsSince(begin) < kLeastSeconds * static_cast<double>(repeat); ++i) {
    const auto start = Clock::now();
    fn();
    best = std::min(best, SecondsSince(start));
  }
  return best;
}

// ---- kernels

struct KernelResult {
  std::string name, type;
  size_t m, n, k;
  double gops;             // 2 m n k per second
  double gigabytes = 0.0;  // weights read per second
};

void FillUniform(Mat<float>& m, uint64_t seed) {
  for (size_t i = 0; i < m.rows(); ++i) {
    const RandomStream random(seed, 0, i);
    for (size_t j = 0; j < m.cols(); ++j) {
      m.Row(i)[j] = static_cast<float>(random.Uniform(j) - 0.5);
    }
  }
}

// Enough equal matrices to overflow the processor's caches: a product then reads its weights from
// memory, as in a model.
std::vector<PackedMatrix> RandomWeights(DType dtype, size_t n, size_t k, ThreadPool& pool) {
  constexpr size_t kMoreThanCaches = 256 << 20;
  const size_t row_bytes = RowBytes(dtype, k);
  std::vector<std::byte> bytes(n * row_bytes);
  pool.ParallelFor(n, [&](size_t row) {
    Mat<float> values(1, k);
    FillUniform(values, row);
    EncodeRow(dtype, values.data(), k, bytes.data() + row * row_bytes);
  });
  std::vector<PackedMatrix> copies;
  for (size_t total = 0; total < kMoreThanCaches; total += bytes.size()) {
    copies.emplace_back(MatrixSource{.dtype = dtype, .rows = n, .cols = k, .data = bytes.data()},
                        pool);
  }
  return copies;
}

std::vector<KernelResult> MatMulKernels(const Flags& flags, ThreadPool& pool) {
  std::vector<KernelResult> results;
  const size_t n = 12288, k = 4096;  // LLaDA-8B's FFN
  for (const DType dtype :
       {DType::kQ4_0, DType::kQ4_K, DType::kQ6_K, DType::kQ8_0, DType::kBF16, DType::kF32}) {
    const std::vector<PackedMatrix> weights = RandomWeights(dtype, n, k, pool);
    for (const size_t m : {1, 4, 8, 16, 41, 64, 128, 512}) {
      Mat<float> x(m, k), y(m, n);
      FillUniform(x, 1);
      Activations rows;
      size_t run = 0;
      const double seconds = BestSeconds(flags.repeat, [&] {
        rows.Set(x.View());  // quantising the activations is part of the work
        MatMul(rows, weights[run++ % weights.size()], y.View(), pool);
      });
      results.push_back({"matmul", std::string(Info(dtype).name), m, n, k,
                         2e-9 * static_cast<double>(m * n * k) / seconds,
                         1e-9 * static_cast<double>(weights[0].bytes()) / seconds});
    }
  }
  return results;
}

std::vector<KernelResult> AttentionKernels(const Flags& flags, ThreadPool& pool) {
  std::vector<KernelResult> results;
  const size_t keys = 1280, heads = 32, head_dim = 128, dim = heads * head_dim;
  for (const auto& [name, type] :
       {std::pair{"F32", KvType::kF32}, {"F16", KvType::kF16}, {"F16-Q8", KvType::kF16Q8}}) {
    KvCache kv(keys, heads, head_dim, type);
    Mat<float> values(keys, dim), out(keys, dim);
    FillUniform(values, 2);
    kv.StoreKeys(RowSet::All(keys), values.View(), pool);
    kv.StoreValues(RowSet::All(keys), values.View(), pool);
    for (const size_t queries : {size_t{8}, size_t{64}, keys}) {
      const AttentionJob job{
          .q = values.View().Rows(0, queries), .kv = &kv, .out = out.View().Rows(0, queries)};
      const double seconds = BestSeconds(flags.repeat, [&] { Attend({&job, 1}, heads, pool); });
      results.push_back({"attention", name, queries, keys, dim,
                         4e-9 * static_cast<double>(queries * keys * dim) / seconds});
    }
  }
  return results;
}

// ---- whole steps

struct CacheResult {
  std::string cache;
  double first_seconds = 0.0;      // the first step, which is dense
  double step_seconds = 0.0;       // mean of the later steps, in the best run
  std::vector<double> phases;      // of that mean
  double tokens_per_second = 0.0;  // of all requests, one token of each per step
  double rows_fraction = 0.0;      // of the later steps
  double gflops = 0.0;
  size_t memory_bytes = 0;
};

// FFN width that one row uses, averaged over the layers.
double FfnWidth(const ModelConfig& config) {
  const ExpertConfig& experts = config.experts;
  size_t total = 0;
  for (size_t layer = 0; layer < config.num_layers; ++layer) {
    total += config.has_experts(layer) ? experts.used * experts.dim + experts.shared_dim
                                       : config.ffn_dim;
  }
  return static_cast<double>(total) / static_cast<double>(config.num_layers);
}

// What a step actually computed.
struct StepWork {
  double rows, q_rows, kv_rows, attended, num_keys, head_rows;

  double Flops(const ModelConfig& c) const {
    const auto d = static_cast<double>(c.model_dim), q = static_cast<double>(c.q_dim());
    const auto kv = static_cast<double>(c.kv_dim()), f = FfnWidth(c);
    return rows * 2.0 * d * (q + 3.0 * f) + q_rows * 2.0 * d * q + kv_rows * 2.0 * d * kv +
           attended * 4.0 * q * num_keys + head_rows * 2.0 * d * static_cast<double>(c.vocab_rows);
  }
};

// Counted since a generation began, summed over those that step together.
struct Counts {
  uint64_t rows = 0, q_rows = 0, kv_rows = 0, attended = 0, total = 0;

  explicit Counts(std::span<Generation* const> generations) {
    for (Generation* generation : generations) {
      rows += generation->rows_computed();
      q_rows += generation->state().q_rows_computed;
      kv_rows += generation->state().kv_rows_computed;
      attended += generation->state().rows_attended;
      total += generation->rows_total();
    }
  }
};

std::vector<TokenId> RandomPrompt(size_t num_tokens, size_t request) {
  std::vector<TokenId> prompt(num_tokens);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = static_cast<TokenId>(RandomStream(7, request, i).Bits(0) % 256);
  }
  return prompt;
}

CacheResult MeasureCache(Engine& engine, const CacheSpec& spec, const Flags& flags) {
  const SharedCache cache = engine.PrepareCache(spec, {.warm = flags.warm});
  DecodeOptions options = engine.DefaultDecodeOptions();
  options.gen_length = options.steps = flags.gen;
  options.block_length = flags.block;
  options.window = flags.window;
  options.stop = Stop::kNever;
  const MemoryNeed need = NeedOf(engine, flags.prompt, options, *cache);
  const size_t bytes =
      flags.parallel * need.state + WorkspaceBytes(engine, flags.parallel * need.rows);
  if (const size_t left = AvailableMemory(); bytes > left) {
    throw Error("{} would take {} of memory, and {} are left: give fewer requests or tokens",
                Counted(flags.parallel, "request"), FormatBytes(bytes), FormatBytes(left));
  }
  CacheResult best;
  best.cache = cache->description;
  best.step_seconds = best.first_seconds = 1e300;
  PhaseClock& clock = engine.transformer().clock();
  for (size_t run = 0; run < flags.repeat; ++run) {
    std::unique_ptr<Generation> earlier;
    Runner runner(engine);
    if (flags.warm) {
      Generation& donor = runner.Add({RandomPrompt(flags.prompt, 0), options, cache});
      runner.Step();
      earlier = runner.Remove(donor);
    }
    std::vector<Generation*> generations;
    for (size_t request = 0; request < flags.parallel; ++request) {
      generations.push_back(
          &runner.Add({RandomPrompt(flags.prompt, request), options, cache, earlier.get()}));
    }
    const auto timed_step = [&] {
      clock.Reset();
      const auto start = Clock::now();
      runner.Step();
      return SecondsSince(start);
    };
    best.first_seconds = std::min(best.first_seconds, timed_step());
    // A cache may do more in one step than in the next, so the mean of a run's steps counts.
    double seconds = 0.0, head_rows = 0.0;
    std::vector<double> phases(kPhaseNames.size());
    const Counts before(generations);
    size_t steps = 0;
    for (; steps < flags.steps && !generations[0]->done(); ++steps) {
      seconds += timed_step();
      for (size_t p = 0; p < phases.size(); ++p) phases[p] += clock.seconds(static_cast<Phase>(p));
      for (const Generation* generation : generations) {
        head_rows += static_cast<double>(generation->decoder().positions().size());
      }
    }
    best.memory_bytes = 0;
    for (const Generation* generation : generations) best.memory_bytes += generation->cache_bytes();
    const auto count = static_cast<double>(steps);
    if (steps == 0 || seconds / count >= best.step_seconds) continue;
    best.step_seconds = seconds / count;
    best.phases = phases;
    for (double& phase : best.phases) phase /= count;
    const Counts after(generations);
    const auto rows = static_cast<double>(after.rows - before.rows);
    const auto total = static_cast<double>(after.total - before.total);
    best.rows_fraction = rows / total;
    const auto layer_steps =
        count * static_cast<double>(engine.config().num_layers * generations.size());
    const StepWork work{.rows = rows,
                        .q_rows = static_cast<double>(after.q_rows - before.q_rows),
                        .kv_rows = static_cast<double>(after.kv_rows - before.kv_rows),
                        .attended = static_cast<double>(after.attended - before.attended),
                        .num_keys = total / layer_steps,
                        .head_rows = head_rows};
    best.gflops = 1e-9 * work.Flops(engine.config()) / seconds;
    best.tokens_per_second = static_cast<double>(generations.size()) * count / seconds;
  }
  if (best.phases.empty()) {
    throw Error("the answer of {} ends with its first step: give a longer --gen-length",
                Counted(flags.gen, "token"));
  }
  return best;
}

// ---- output

nlohmann::ordered_json ToJson(const std::vector<KernelResult>& kernels, double peak,
                              double bandwidth, const std::vector<CacheResult>& caches) {
  nlohmann::ordered_json json;
  json["fma_peak_gflops"] = peak;
  json["read_bandwidth_gb"] = bandwidth;
  json["kernels"] = nlohmann::ordered_json::array();
  for (const KernelResult& r : kernels) {
    json["kernels"].push_back({{"name", r.name},
                               {"type", r.type},
                               {"m", r.m},
                               {"n", r.n},
                               {"k", r.k},
                               {"gops", r.gops},
                               {"ratio", r.gops / peak}});
  }
  json["caches"] = nlohmann::ordered_json::array();
  for (const CacheResult& r : caches) {
    nlohmann::ordered_json phases;
    for (size_t p = 0; p < kPhaseNames.size(); ++p)
      phases[std::string(kPhaseNames[p])] = r.phases[p];
    json["caches"].push_back({{"cache", r.cache},
                              {"first_step_seconds", r.first_seconds},
                              {"step_seconds", r.step_seconds},
                              {"phases", phases},
                              {"tokens_per_second", r.tokens_per_second},
                              {"rows_fraction", r.rows_fraction},
                              {"gflops", r.gflops},
                              {"memory_bytes", r.memory_bytes}});
  }
  return json;
}

void PrintTables(const std::vector<KernelResult>& kernels, double peak, double bandwidth,
                 const std::vector<CacheResult>& caches) {
  std::string text =
      fmt::format("FMA peak {:.0f} GFLOP/s, plain read {:.1f} GB/s\n\n", peak, bandwidth);
  if (!kernels.empty()) {
    std::vector<std::vector<std::string>> table = {
        {"kernel", "type", "m", "n", "k", "GOP/s", "x peak", "read"}};
    for (const KernelResult& r : kernels) {
      table.push_back(
          {r.name, r.type, fmt::format("{}", r.m), fmt::format("{}", r.n), fmt::format("{}", r.k),
           fmt::format("{:.0f}", r.gops), fmt::format("{:.2f}", r.gops / peak),
           r.gigabytes > 0 ? fmt::format("{:.0f}%", 100 * r.gigabytes / bandwidth) : ""});
    }
    text += FormatTable(table) + "\n";
  }
  if (!caches.empty()) {
    std::vector<std::vector<std::string>> table = {
        {"cache", "first ms", "step ms", "tokens/s", "rows", "x peak", "memory"}};
    for (const auto& name : kPhaseNames) table[0].emplace_back(name);
    for (const CacheResult& r : caches) {
      table.push_back({r.cache, fmt::format("{:.1f}", 1e3 * r.first_seconds),
                       fmt::format("{:.1f}", 1e3 * r.step_seconds),
                       fmt::format("{:.2f}", r.tokens_per_second),
                       fmt::format("{:.1f}%", 100.0 * r.rows_fraction),
                       fmt::format("{:.2f}", r.gflops / peak), FormatBytes(r.memory_bytes)});
      for (const double seconds : r.phases) {
        table.back().push_back(fmt::format("{:.1f}%", 100.0 * seconds / r.step_seconds));
      }
    }
    text += FormatTable(table);
  }
  while (text.ends_with('\n')) text.pop_back();
  PrintLine(text);
}

void RunRace(const Flags& flags) {
  if (!flags.shape.empty() && !flags.model.model.empty()) {
    throw Error("a race is run by a model (-m) or by a shape (--shape), not by both");
  }
  if (!flags.race.llama_bench.empty() && flags.shape.empty() && flags.race.llama_model.empty()) {
    throw Error("say which model llama.cpp runs with --llama-model, or race a --shape");
  }
  std::unique_ptr<TemporaryModel> ours, theirs;
  ModelFlags model = flags.model;
  RaceFlags race = flags.race;
  race.answer = flags.gen;
  race.block = flags.block;
  race.window = flags.window;
  race.full |= flags.window.has_value();  // else the last block would start from given ones
  race.threads =
      flags.model.threads > 0 ? flags.model.threads : std::thread::hardware_concurrency();
  if (!flags.shape.empty()) {
    ThreadPool pool(flags.model.threads);
    const ModelConfig shape = NamedShape(flags.shape, flags.layers);
    if (!race.llama_bench.empty() && race.llama_model.empty()) {
      theirs = std::make_unique<TemporaryModel>(shape, flags.type, true, pool);
      race.llama_model = theirs->path().string();
    }
    ours = std::make_unique<TemporaryModel>(shape, flags.type, false, pool);
    model.model = ours->path().string();
  }
  // One after the other: llama.cpp runs before our weights are loaded.
  const std::vector<LlamaTimes> llama = RunLlamaBench(race);
  const auto engine = model.Load();
  ours.reset();
  ProgressBar bar;
  engine->set_progress([&](std::string_view what, double share) { bar.Show(what, share); });
  PrintRace(*engine, race, llama, flags.json);
}

void Run(const Flags& flags) {
  if (flags.race.on) return RunRace(flags);
  const std::vector<CacheSpec> specs = CheckCaches(ParseCacheList(flags.caches));
  if (specs.empty()) throw Error("--caches names no cache");
  std::vector<KernelResult> kernels;
  std::vector<CacheResult> caches;
  double peak = 0.0, bandwidth = 0.0;
  if (flags.kernels) {
    ThreadPool pool(flags.model.threads);
    peak = MeasureFmaPeakGflops(pool);
    bandwidth = MeasureReadBandwidth(pool);
    kernels = MatMulKernels(flags, pool);
    for (KernelResult& result : AttentionKernels(flags, pool)) kernels.push_back(result);
    peak = std::max(peak, MeasureFmaPeakGflops(pool));
  } else {
    std::unique_ptr<TemporaryModel> temporary;
    ModelFlags model = flags.model;
    if (!flags.shape.empty()) {
      ThreadPool pool(flags.model.threads);
      temporary = std::make_unique<TemporaryModel>(NamedShape(flags.shape, flags.layers),
                                                   flags.type, false, pool);
      model.model = temporary->path().string();
    }
    const auto engine = model.Load();
    temporary.reset();  // already mapped; a named file would outlive an interrupted run
    ProgressBar bar;
    engine->set_progress([&](std::string_view what, double share) { bar.Show(what, share); });
    peak = MeasureFmaPeakGflops(engine->pool());
    bandwidth = MeasureReadBandwidth(engine->pool());
    for (const CacheSpec& spec : specs) {
      caches.push_back(MeasureCache(*engine, spec, flags));
    }
    peak = std::max(peak, MeasureFmaPeakGflops(engine->pool()));
  }
  if (flags.json) {
    PrintLine(ToJson(kernels, peak, bandwidth, caches).dump());
  } else {
    PrintTables(kernels, peak, bandwidth, caches);
  }
}

}  // namespace

void AddBench(CommandLine& line) {
  auto flags = std::make_shared<Flags>();
  Command command = line.Add("bench", "Measure steps, phases and kernels");
  const Flag kernels =
      command.Add("--kernels", flags->kernels,
                  "Measure each kernel against the FMA peak and the read bandwidth");
  const Flag race = flags->race.Add(command).Without(kernels);
  const Flag model = flags->model.Add(command).Without(kernels);
  const Flag shape =
      command
          .Add("--shape", flags->shape,
               "Random weights in a published shape (as for synth) instead of a model")
          .Without(kernels)
          .Without(model);
  command.Add("--layers", flags->layers, "Layers of the shape (default 4)").Positive().With(shape);
  command.Add("--type", flags->type, "Type of the shape's matrices (default Q4_0)").With(shape);
  command
      .Add("--caches", flags->caches,
           "Caches to measure, with options as spa:rank=64:scope=all (default none,spa)")
      .Without(kernels)
      .Without(race);
  command.Add("--prompt-tokens", flags->prompt, "Prompt tokens (default 256)")
      .Between(1, 1 << 20)
      .Without(kernels)
      .Without(race);
  command.Add("-n,--gen-length", flags->gen, "Tokens of the canvas (default 256)")
      .Between(1, 1 << 20)
      .Without(kernels);
  command.Add("--block-length", flags->block, "Block length (default 32)")
      .Between(1, 1 << 20)
      .Without(kernels);
  command.Add("--window", flags->window, "Masks computed after the block (default: all)")
      .Between(0, 1 << 20)
      .Without(kernels);
  command.Add("--steps", flags->steps, "Steps to average after the first one (default 8)")
      .Between(1, 1 << 20)
      .Without(kernels)
      .Without(race);
  command.Add("--repeat", flags->repeat, "Runs per cache; the best counts (default 3)")
      .Between(1, 1000)
      .Without(race);
  const Flag parallel =
      command.Add("--parallel", flags->parallel, "Requests that step together (default 1)")
          .Between(1, 1024)
          .Without(kernels)
          .Without(race);
  command
      .Add("--warm", flags->warm,
           "Start from the states of an earlier request with the same prompt (spa)")
      .Without(kernels)
      .Without(race)
      .Without(parallel);
  command.Add("--json", flags->json, "Print one JSON object");
  command.Footer(
      "Examples:\n"
      "  spa bench --kernels\n"
      "  spa bench --shape llada-8b --layers 4 --prompt-tokens 256 --gen-length 256 --caches "
      "none,spa\n"
      "  spa bench --race --shape llada-8b --layers 32 --llama-bench "
      "~/llama.cpp/build/bin/llama-bench");
  command.Action([flags] { Run(*flags); });
}

}  // namespace spa::cli
