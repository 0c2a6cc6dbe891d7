// Tiny models of every family decode as their makers' programs do: the same tokens, written in the
// same passes, with any cache that is exact for them, any batch and any number of threads.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/runner.h"
#include "tests/test_model.h"

namespace spa::family_decode_test {
namespace {

using nlohmann::json;

const std::string kFamilies = SPA_TEST_DATA "/families/";

json File(const std::string& family) {
  std::ifstream in(kFamilies + family + "/decode.json");
  return json::parse(in);
}

std::vector<json> Cases(const std::string& family) { return File(family)["cases"]; }

using Passes = std::vector<std::vector<uint32_t>>;  // positions written, pass by pass

struct Decoded {
  std::vector<TokenId> ids;  // prompt, canvas and suffix
  Passes passes;
  size_t prompt_length = 0;
};

// What one generation does.
class FamilyRun {
 public:
  FamilyRun(TestModel& model, const std::vector<TokenId>& prompt, const DecodeOptions& options,
            std::vector<TokenId> stop_ids, const std::string& cache,
            std::vector<TokenId> suffix = {}, const std::vector<std::string>& cache_options = {},
            GivenCanvas canvas = {})
      : generation(model.file.config(), prompt, options,
                   {.mask_id = model.file.config().mask_id,
                    .fill_id = model.file.config().mask_id,
                    .stop_ids = std::move(stop_ids),
                    .num_tokens = model.file.config().vocab_rows,
                    .never = {},
                    .spaced = {},
                    .expand_id = options.grow ? *model.file.config().expand_id : -1,
                    .delete_id = options.grow ? *model.file.config().eos_id : -1},
                   KvType::kF32, model.Policy(cache, cache_options), std::move(suffix),
                   std::move(canvas)) {}

  void Note() {
    const bool seed =
        generation.decoder().input().block_end <=
        (generation.decoder().positions().empty() ? 0 : generation.decoder().positions().front());
    const RowSet& changed = generation.decoder().changed();
    if (!seed) result.passes.emplace_back(changed.begin(), changed.end());
    result.ids.assign(generation.decoder().ids().begin(), generation.decoder().ids().end());
    result.prompt_length = generation.decoder().prompt_length();
  }

  Generation generation;
  Decoded result;
};

Decoded Decode(TestModel& model, FamilyRun& run) {
  Generation* one = &run.generation;
  while (!run.generation.done()) {
    StepTogether(model.transformer, {&one, 1});
    run.Note();
  }
  return run.result;
}

// Passes that wrote nothing are not in every reference's list; the last one always is.
Passes WithoutEmpty(Passes passes) {
  const std::vector<uint32_t> last = passes.back();
  std::erase_if(passes, [](const auto& pass) { return pass.empty(); });
  if (last.empty()) passes.push_back(last);
  return passes;
}

Passes Sorted(const json& passes) {
  Passes sorted = passes;
  for (auto& pass : sorted) std::ranges::sort(pass);
  return sorted;
}

void Expect(const Decoded& decoded, const json& one, bool output_has_prompt, const char* passes,
            const std::string& where) {
  const auto expected = one["output"].get<std::vector<TokenId>>();
  const size_t first = output_has_prompt ? 0 : decoded.prompt_length;
  ASSERT_GE(decoded.ids.size(), first + expected.size()) << where;
  const std::vector<TokenId> ids(
      decoded.ids.begin() + static_cast<ptrdiff_t>(first),
      decoded.ids.begin() + static_cast<ptrdiff_t>(first + expected.size()));
  EXPECT_EQ(ids, expected) << where;
  // Of the last pass the reference lists only positions in the part of the canvas it returns.
  ASSERT_FALSE(decoded.passes.empty()) << where;
  Passes ours = WithoutEmpty(decoded.passes), theirs = WithoutEmpty(Sorted(one[passes]));
  const size_t end = first + expected.size();
  for (Passes* list : {&ours, &theirs}) {
    std::erase_if(list->back(), [&](uint32_t pos) { return pos >= end; });
  }
  EXPECT_EQ(ours, theirs) << where;
}

TEST(FamilyDecode, LladaMoe) {
  TestModel model(kFamilies + "llada-moe/model");
  for (const json& one : Cases("llada-moe")) {
    DecodeOptions options;
    options.gen_length = one["options"]["gen_length"];
    options.block_length = one["options"]["block_length"];
    options.steps = one["options"]["steps"];
    options.stop = Stop::kNever;
    FamilyRun run(model, one["prompt"], options, {}, "none");
    Expect(Decode(model, run), one, true, "settled", one["name"]);
  }
}

DecodeOptions A2dOptions(const json& one) {
  const json& o = one["options"];
  const bool blocks = one["sampler"] == "BD3LMSampler.sample";
  DecodeOptions options;
  options.schedule = Schedule::kLinear;
  options.gen_length = o["max_new_tokens"];
  options.block_length = o["block_size"];
  options.steps = o["steps"];
  options.cfg_scale = o.value("cfg_scale", 0.0);
  options.block_attention = blocks;
  options.stop = blocks ? Stop::kBlock : Stop::kNever;
  return options;
}

TEST(FamilyDecode, A2d) {
  for (const std::string family : {"a2d-qwen3", "a2d-qwen2"}) {
    TestModel model(kFamilies + family + "/model");
    for (const json& one : Cases(family)) {
      if (one["sampler"] == "MDLMSampler.infill") continue;
      const bool blocks = one["sampler"] == "BD3LMSampler.sample";
      for (const std::string& cache :
           blocks ? std::vector<std::string>{"none", "block"} : std::vector<std::string>{"none"}) {
        FamilyRun run(model, one["prompt"], A2dOptions(one), {one["eos_id"].get<TokenId>()}, cache);
        Expect(Decode(model, run), one, true, "settled",
               family + " " + one["name"].get<std::string>() + " " + cache);
      }
    }
  }
}

// Gaps in a text, in blocks counted from its beginning.
TEST(FamilyDecode, A2dInfill) {
  size_t found = 0;
  for (const std::string family : {"a2d-qwen3", "a2d-qwen2"}) {
    TestModel model(kFamilies + family + "/model");
    for (const json& one : Cases(family)) {
      if (one["sampler"] != "MDLMSampler.infill") continue;
      ++found;
      const std::vector<TokenId> ids = one["prompt"];
      const TokenId mask = model.file.config().mask_id;
      const auto first = std::ranges::find(ids, mask);
      const auto last = std::find(ids.rbegin(), ids.rend(), mask).base();
      DecodeOptions options;
      options.schedule = Schedule::kLinear;
      options.gen_length = static_cast<size_t>(last - first);
      options.block_length = one["options"]["block_size"];
      const size_t blocks = (ids.size() + options.block_length - 1) / options.block_length;
      options.steps_per_block = (one["options"]["steps"].get<size_t>() + blocks - 1) / blocks;
      options.blocks_from_start = true;
      options.stop = Stop::kNever;
      FamilyRun run(model, {ids.begin(), first}, options, {}, "none", {last, ids.end()}, {},
                    {{first, last}, {}});
      Expect(Decode(model, run), one, true, "settled", family);
    }
  }
  EXPECT_EQ(found, 2u);
}

// A gap that grows and shrinks: the very tokens every pass of the reference saw.
TEST(FamilyDecode, DreamOn) {
  TestModel model(kFamilies + "dreamon/model");
  const json file = File("dreamon");
  for (const json& one : file["cases"]) {
    const std::string name = one["name"];
    const std::vector<TokenId> prefix = one["prefix"];
    std::vector<TokenId> suffix = one["suffix"];
    suffix.push_back(file["delete_id"]);  // the end of the text, which is never deleted
    const size_t masks = one["masks"];
    DecodeOptions options;
    options.schedule = Schedule::kNone;
    options.gen_length = options.block_length = options.steps = masks;
    options.order = one["options"]["alg"] == "entropy" ? Order::kEntropy : Order::kProbability;
    options.grow = one["options"]["max_gen_len"].get<size_t>() - masks;
    options.stop = Stop::kNever;
    for (const std::string cache : {"none", "spa"}) {
      FamilyRun run(model, prefix, options, {}, cache, suffix, {},
                    {std::vector<TokenId>(masks, model.file.config().mask_id), {}});
      const Decoder& decoder = run.generation.decoder();
      const auto seen = [&] {
        const auto ids =
            decoder.ids().first(decoder.prompt_length() + decoder.canvas().size() + suffix.size());
        return std::vector<TokenId>(ids.begin(), ids.end());
      };
      std::vector<std::vector<TokenId>> passes;
      Generation* generation = &run.generation;
      while (!generation->done()) {
        passes.push_back(seen());
        StepTogether(model.transformer, {&generation, 1});
      }
      ASSERT_EQ(decoder.gaps().size(), 1u);
      EXPECT_EQ(std::ranges::count(seen(), model.file.config().mask_id), 0);
      if (cache == "spa") continue;  // an approximation; it must come to an end
      EXPECT_EQ(passes, one["canvas_per_pass"].get<std::vector<std::vector<TokenId>>>()) << name;
      EXPECT_EQ(seen(), one["output"].get<std::vector<TokenId>>()) << name;
      const auto canvas = decoder.canvas();
      EXPECT_EQ(std::vector<TokenId>(canvas.begin(), canvas.end()),
                one["middle"].get<std::vector<TokenId>>())
          << name;
    }
  }
}

// Caches that are exact with block attention. Every row that sees the block competes in SPA-Cache,
// the prompt's tail in the first block too, so a full budget changes nothing.
const std::pair<std::string, std::vector<std::string>> kExact[] = {
    {"none", {}},
    {"block", {}},
    {"spa", {"rho=1", "min-drift=0", "refresh-prompt=0", "outside=0"}}};

DecodeOptions SdarOptions(const json& o) {
  DecodeOptions options;
  options.schedule = Schedule::kEvenSplitBlock;
  options.gen_length = o["gen_length"];
  options.block_length = o["block_length"];
  options.steps_per_block = o["denoising_steps"];
  options.threshold = o["threshold"].get<double>();
  options.block_attention = options.blocks_from_start = true;
  options.stop = Stop::kBlock;
  return options;
}

TEST(FamilyDecode, Sdar) {
  TestModel model(kFamilies + "sdar/model");
  for (const json& one : Cases("sdar")) {
    for (const auto& [cache, cache_options] : kExact) {
      FamilyRun run(model, one["prompt"], SdarOptions(one["options"]), one["stop_ids"], cache, {},
                    cache_options);
      Expect(Decode(model, run), one, true, "settled",
             one["name"].get<std::string>() + " " + cache);
    }
  }
}

DecodeOptions Llada2Options(const json& one) {
  const json& o = one["options"];
  DecodeOptions options;
  options.schedule = Schedule::kEvenSplitBlock;
  options.gen_length = o["gen_length"];
  options.block_length = o["block_length"];
  options.steps_per_block = o.value("steps", options.block_length);
  options.threshold = o["threshold"].get<double>();
  options.block_attention = options.blocks_from_start = true;
  const bool early = o.value("eos_early_stop", false);
  options.stop = early ? Stop::kAnswer : Stop::kBlock;
  if (one["version"] == "2.1") {
    options.edit_threshold = o["editing_threshold"].get<double>();
    options.max_post_steps = o["max_post_steps"];
    options.stop = early ? Stop::kBlock : Stop::kNever;
  }
  return options;
}

TEST(FamilyDecode, Llada2) {
  TestModel model(kFamilies + "llada2/model");
  for (const json& one : Cases("llada2")) {
    for (const auto& [cache, cache_options] : kExact) {
      FamilyRun run(model, one["prompt"], Llada2Options(one), {one["eos_id"].get<TokenId>()}, cache,
                    {}, cache_options);
      Expect(
          Decode(model, run), one, false, "changed",
          one["version"].get<std::string>() + " " + one["name"].get<std::string>() + " " + cache);
    }
  }
}

DecodeOptions FastDllmOptions(const json& one) {
  const json& o = one["options"];
  DecodeOptions options;
  options.schedule = Schedule::kNone;
  options.block_length = o["block_size"];
  options.sub_block_length = o["small_block_size"];
  options.threshold = o["threshold"].get<double>();
  const size_t prompt = one["prompt"].size(), block = options.block_length;
  // The partly filled first block counts as one.
  options.gen_length =
      prompt / block * block + o["max_new_tokens"].get<size_t>() / block * block - prompt;
  options.block_attention = options.blocks_from_start = options.seed_blocks = true;
  return options;
}

TEST(FamilyDecode, FastDllmV2) {
  TestModel model(kFamilies + "fast-dllm-v2/model");
  for (const json& one : Cases("fast-dllm-v2")) {
    const bool parts = one["options"].value("use_block_cache", false);  // an approximation
    for (const std::string cache : {"none", "block"}) {
      if (parts && cache == "none") continue;
      FamilyRun run(model, one["prompt"], FastDllmOptions(one), {one["stop_id"].get<TokenId>()},
                    cache, {},
                    parts ? std::vector<std::string>{"parts=on"} : std::vector<std::string>{});
      Decoded decoded = Decode(model, run);
      auto expected = one;
      // The reference ends with one more token, from the pass that stores the last block.
      auto ids = one["output"].get<std::vector<TokenId>>();
      if (ids.size() > decoded.ids.size()) ids.resize(decoded.ids.size());
      expected["output"] = ids;
      Expect(decoded, expected, true, "settled", one["name"].get<std::string>() + " " + cache);
    }
  }
}

TEST(FamilyDecode, Rnd1) {
  TestModel model(kFamilies + "rnd1/model");
  const json file = File("rnd1");
  for (const json& one : file["cases"]) {
    const json& o = one["options"];
    DecodeOptions options;
    options.schedule = Schedule::kEntropyKept;
    options.order = Order::kEntropy;
    options.gen_length = options.block_length =
        o["seq_len"].get<size_t>() - one["prompt"].size() - 1;
    options.steps = o["num_steps"];
    if (o.contains("eb_gamma")) options.entropy_bound = o["eb_gamma"].get<double>();
    options.stop = Stop::kNever;
    const TokenId last = o.value("add_eos_at_end", false) ? file["eos_id"] : file["pad_id"];
    FamilyRun run(model, one["prompt"], options, {}, "none", {last});
    Expect(Decode(model, run), one, true, "settled", one["name"]);
  }
}

// The options of a case of block decoding; nothing for the others.
std::optional<DecodeOptions> BlockOptions(const std::string& family, const json& one) {
  if (family == "llada2") return Llada2Options(one);
  if (family == "sdar") return SdarOptions(one["options"]);
  if (family == "fast-dllm-v2") return FastDllmOptions(one);
  if (one["sampler"] == "BD3LMSampler.sample") return A2dOptions(one);
  return std::nullopt;
}

std::vector<TokenId> StopIds(const json& one) {
  if (one.contains("stop_ids")) return one["stop_ids"];
  return {one[one.contains("stop_id") ? "stop_id" : "eos_id"].get<TokenId>()};
}

class BlockDecode : public testing::TestWithParam<std::string> {};

// The same bits alone, in a batch, with one thread and with two.
TEST_P(BlockDecode, AnswersDoNotDependOnBatchOrThreads) {
  const std::string folder = kFamilies + GetParam() + "/model";
  TestModel one_thread(folder, 1), two_threads(folder, 2);
  std::vector<Decoded> alone;
  std::vector<std::unique_ptr<FamilyRun>> together;
  for (const json& one : Cases(GetParam())) {
    const auto options = BlockOptions(GetParam(), one);
    if (!options) continue;
    FamilyRun run(one_thread, one["prompt"], *options, StopIds(one), "block");
    alone.push_back(Decode(one_thread, run));
    together.push_back(
        std::make_unique<FamilyRun>(two_threads, one["prompt"], *options, StopIds(one), "block"));
  }
  ASSERT_GE(alone.size(), 4u);
  for (bool running = true; running;) {
    std::vector<Generation*> batch;
    std::vector<FamilyRun*> runs;
    for (const auto& run : together) {
      if (run->generation.done()) continue;
      batch.push_back(&run->generation);
      runs.push_back(run.get());
    }
    running = !batch.empty();
    if (!running) break;
    StepTogether(two_threads.transformer, batch);
    for (FamilyRun* run : runs) run->Note();
  }
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(together[i]->result.ids, alone[i].ids) << i;
    EXPECT_EQ(together[i]->result.passes, alone[i].passes) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BlockDecode,
                         testing::Values("a2d-qwen2", "a2d-qwen3", "fast-dllm-v2", "llada2",
                                         "sdar"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace spa::family_decode_test
