// The memory a generation is said to need, against what it takes.
#include "engine/memory.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <fstream>

#include "base/error.h"
#include "engine/runner.h"

// Of the sanitizers' allocator, where there is one: mallinfo2() is zero then.
extern "C" __attribute__((weak)) size_t __sanitizer_get_current_allocated_bytes();

namespace spa {
namespace {

// What the process has allocated.
size_t TakenBytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) {
    return __sanitizer_get_current_allocated_bytes();
  }
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

Engine& TestEngine() {
  static Engine engine(
      {.model = SPA_TEST_DATA "/mini.gguf", .threads = 2, .kv_type = KvType::kF32, .progress = {}});
  return engine;
}

DecodeOptions Options(size_t gen_length = 32) {
  DecodeOptions options = TestEngine().DefaultDecodeOptions();
  options.gen_length = options.steps = gen_length;
  options.block_length = 16;
  return options;
}

// Every cache as it comes, and SPA-Cache with everything that changes what it keeps.
std::vector<CacheSpec> Specs() {
  std::vector<CacheSpec> specs;
  for (const CacheInfo& info : Caches()) {
    if (info.name != "block") specs.push_back({.name = info.name, .options = {}});  // keeps K and V
  }
  const CacheInfo& spa = FindCache("spa");
  for (const std::string& identifier : FindOption(spa.options, "identifier")->choices) {
    for (const std::string& first : FindOption(spa.options, "first-layer")->choices) {
      specs.push_back(
          {.name = "spa", .options = {{"identifier", identifier}, {"first-layer", first}}});
    }
  }
  specs.push_back({.name = "spa", .options = {{"focus", "off"}, {"rank", "3"}}});
  specs.push_back({.name = "spa", .options = {{"prompt", "on"}}});
  specs.push_back({.name = "elastic", .options = {{"track", "3"}}});
  return specs;
}

TEST(Memory, AStateTakesWhatWasSaid) {
  const std::vector<TokenId> prompt(21, 300);
  for (const KvType type : {KvType::kF32, KvType::kF16Q8}) {
    Engine engine(
        {.model = SPA_TEST_DATA "/mini.gguf", .threads = 2, .kv_type = type, .progress = {}});
    for (const CacheSpec& spec : Specs()) {
      const SharedCache cache = engine.PrepareCache(spec);
      Runner runner(engine);
      Generation& generation = runner.Add({prompt, Options(), cache});
      const size_t promised = SequenceState::BytesFor(engine.config(), prompt.size() + 32,
                                                      prompt.size(), type, *cache->make());
      runner.Step();
      // Elastic-Cache begins to track rows in its second step.
      if (spec.name != "elastic") {
        EXPECT_EQ(generation.cache_bytes(), promised) << spec.ToString();
      }
      for (int i = 0; i < 8 && !generation.done(); ++i) {
        runner.Step();
        EXPECT_LE(generation.cache_bytes(), promised) << spec.ToString();
      }
    }
  }
}

// Everything the process takes for it, not only what the state counts.
TEST(Memory, AGenerationStaysBelowItsPromise) {
  const std::vector<TokenId> prompt(400, 300);
  for (const char* name : {"none", "spa", "dllm", "fast-dual", "d2", "elastic"}) {
    for (const double cfg : {0.0, 1.0}) {
      const SharedCache cache = TestEngine().PrepareCache({.name = name, .options = {}});
      DecodeOptions options = Options(64);
      options.cfg_scale = cfg;
      TestEngine().transformer().ReleaseWorkspace();
      const size_t before = TakenBytes();
      Runner runner(TestEngine());
      runner.Add({prompt, options, cache});
      for (int i = 0; i < 3; ++i) runner.Step();
      const size_t promised =
          TotalBytes(TestEngine(), NeedOf(TestEngine(), prompt.size(), options, *cache));
      EXPECT_LE(TakenBytes() - before, promised) << name << " guidance " << cfg;
      EXPECT_GT(TakenBytes() - before, promised / 4) << name << " guidance " << cfg;
    }
  }
}

// The first step of a first threshold reads the whole canvas, and so may a block whose masks are
// pushed on.
TEST(Memory, WhatIsReadOfTheWholeCanvasIsCounted) {
  const SharedCache cache = TestEngine().PrepareCache({.name = "none", .options = {}});
  const auto state = [&](const DecodeOptions& options) {
    return NeedOf(TestEngine(), 5, options, *cache).state;
  };
  const size_t row = TestEngine().config().vocab_rows * sizeof(float);
  DecodeOptions options = Options(64);  // in blocks of 16
  options.first_threshold.reset();
  DecodeOptions first = options;
  first.first_threshold = 0.99;
  EXPECT_EQ(state(first), state(options));
  first.klass = options.klass = 0.01;
  EXPECT_EQ(state(first), state(options) + 48 * row);
  first.cfg_scale = options.cfg_scale = 1.0;
  EXPECT_EQ(state(first), state(options) + 2 * 2 * 48 * row);
  DecodeOptions grown = Options(64);
  grown.first_threshold.reset();
  grown.grow_to = 96;
  const size_t plain = state(grown);
  grown.klass = 0.01;
  EXPECT_EQ(state(grown), plain + 96 * row);
}

// The experts' rows are many times the layer's.
TEST(Memory, ExpertsStayBelowTheirPromise) {
  for (const char* family : {"llada-moe", "llada2", "rnd1", "diffusion-gemma"}) {
    Engine engine({.model = SPA_TEST_DATA "/families/" + std::string(family) + "/model",
                   .threads = 2,
                   .kv_type = KvType::kF32,
                   .progress = {}});
    const std::vector<TokenId> prompt(700, 5);
    const SharedCache cache = engine.PrepareCache({.name = "none", .options = {}});
    DecodeOptions options = engine.DefaultDecodeOptions();
    options.gen_length = options.steps = 64;
    options.block_length = std::min<size_t>(options.block_length, 32);
    options.stop = Stop::kNever;
    const size_t before = TakenBytes();
    Runner runner(engine);
    runner.Add(
        {.prompt = prompt, .decode = options, .cache = cache, .warm_from = {}, .prefixes = {}});
    runner.Step();
    const size_t promised = TotalBytes(engine, NeedOf(engine, prompt.size(), options, *cache));
    EXPECT_LE(TakenBytes() - before, promised) << family;
    EXPECT_GT(TakenBytes() - before, promised / 5) << family;
  }
}

TEST(Memory, ARefusalSaysWhatWouldFit) {
  const SharedCache cache = TestEngine().PrepareCache({.name = "dllm", .options = {}});
  const size_t needed = TotalBytes(TestEngine(), NeedOf(TestEngine(), 400, Options(), *cache));
  EXPECT_NO_THROW(CheckMemory(TestEngine(), 400, Options(), *cache, needed));
  try {
    CheckMemory(TestEngine(), 400, Options(), *cache, needed - 1);
    FAIL() << "it does not fit";
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const char* part :
         {"432 tokens", "--kv f16 (", "--kv f16-q8 (", "--cache none", "431 tokens"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  }
  EXPECT_THROW(CheckMemory(TestEngine(), 400, Options(), *cache, 1000), Error);
}

void Write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

TEST(Memory, TheTightestLimitCounts) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "spa-memory-test";
  std::filesystem::remove_all(root);
  const auto left = [&] { return AvailableMemory(root / "proc", root / "cgroup"); };
  Write(root / "proc/meminfo", "MemTotal: 4000 kB\nMemFree: 1 kB\nMemAvailable: 1000 kB\n");
  EXPECT_EQ(left(), 1024000u);
  Write(root / "proc/self/cgroup", "4:memory:/a/b\n3:cpu:/\n0::/c\n");
  EXPECT_EQ(left(), 1024000u);
  Write(root / "cgroup/c/memory.max", "max\n");
  Write(root / "cgroup/c/memory.current", "500000\n");
  EXPECT_EQ(left(), 1024000u);
  Write(root / "cgroup/c/memory.max", "900000\n");
  EXPECT_EQ(left(), 400000u);
  Write(root / "cgroup/c/memory.stat", "anon 7\ninactive_file 100000\n");
  EXPECT_EQ(left(), 500000u);
  // Of a group above, in the older form.
  Write(root / "cgroup/memory/a/memory.limit_in_bytes", "300000\n");
  Write(root / "cgroup/memory/a/memory.usage_in_bytes", "100000\n");
  EXPECT_EQ(left(), 200000u);
  Write(root / "cgroup/memory/a/memory.usage_in_bytes", "300001\n");
  EXPECT_EQ(left(), 0u);
}

TEST(Memory, AmountsAreReadAndWritten) {
  EXPECT_EQ(ParseBytes("1000000"), 1000000u);
  EXPECT_EQ(ParseBytes("512M"), 512000000u);
  EXPECT_EQ(ParseBytes("1.5g"), 1500000000u);
  for (const char* wrong : {"", "G", "0", "-1G", "2GB", "1e30", "nan", "2 G"}) {
    EXPECT_THROW(ParseBytes(wrong), Error) << wrong;
  }
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(ParseBytes("1.5G")), "1.5 GB");
  EXPECT_EQ(FormatBytes(ParseBytes("2K")), "2.0 kB");
}

}  // namespace
}  // namespace spa
