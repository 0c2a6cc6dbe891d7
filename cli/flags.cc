#include "cli/flags.h"

#include <charconv>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>

#include "base/error.h"

namespace spa::cli {
namespace {

const std::map<std::string, KvType> kKvTypes = {
    {"f32", KvType::kF32}, {"f16", KvType::kF16}, {"bf16", KvType::kBF16}};

template <typename T>
std::vector<std::string> Keys(const std::map<std::string, T>& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

}  // namespace

void ModelFlags::Add(CLI::App& command) {
  command
      .add_option("-m,--model", model,
                  "GGUF file or Hugging Face folder (default: the embedded mini model)")
      ->type_name("PATH");
  command.add_option("-t,--threads", threads, "Threads to use (default: one per core)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  command.add_option("--kv", kv, "Type of cached keys and values: f32, f16, bf16")
      ->check(CLI::IsMember(Keys(kKvTypes)))
      ->type_name("TYPE");
}

std::unique_ptr<Engine> ModelFlags::Load() const {
  ProgressBar bar;
  auto engine = std::make_unique<Engine>(EngineOptions{
      .model = model,
      .threads = threads,
      .kv_type = kKvTypes.at(kv),
      .progress = [&bar](std::string_view what, double share) { bar.Show(what, share); }});
  engine->set_progress({});
  return engine;
}

void DecodeFlags::Add(CLI::App& command) {
  const char* group = "Decoding";
  command.add_option("-n,--gen-length", choices.gen_length, "Length of the answer's canvas (default: the model's, else 128)")
      ->type_name("N")->group(group);
  command.add_option("--block-length", choices.block_length,
                     "Decode in blocks of this many tokens (default: the model's, else LLaDA 32, "
                     "Dream all)")
      ->type_name("N")->group(group);
  command.add_option("--steps", choices.steps, "Denoising steps (default: one per token)")
      ->type_name("N")->group(group);
  command.add_option("--remasking,--alg", choices.order,
                     "What is settled first: low_confidence, random (LLaDA); entropy, "
                     "maskgit_plus, topk_margin, origin (Dream); leftmost")
      ->check(CLI::IsMember(OrderNames()))->type_name("ORDER")->group(group);
  command.add_option("--temperature", choices.temperature, "0 takes the most likely token (default)")
      ->type_name("T")->group(group);
  command.add_option("--top-p", choices.top_p, "Keep the most likely tokens up to this mass (Dream)")
      ->type_name("P")->group(group);
  command.add_option("--top-k", choices.top_k, "Keep the K most likely tokens (Dream)")
      ->type_name("K")->group(group);
  command.add_option("--alg-temp", choices.order_temperature,
                     "Draw the positions to settle at this temperature (Dream)")
      ->type_name("T")->group(group);
  command.add_option("--eps", choices.eps, "End of the time grid (Dream, default 0.001)")
      ->type_name("E")->group(group);
  command.add_option("--cfg-scale", choices.cfg_scale, "Classifier-free guidance (default 0: off)")
      ->type_name("S")->group(group);
  command.add_option("--threshold", choices.threshold,
                     "Parallel decoding: settle every token at least this probable (try 0.9)")
      ->type_name("P")->group(group);
  command.add_option("--factor", choices.factor, "Parallel decoding by Fast-dLLM's factor rule (try 1)")
      ->type_name("F")->group(group);
  command.add_option("--eos", choices.eos_rule, "End tokens: free, never (chosen), last (settled)")
      ->check(CLI::IsMember(EosRuleNames()))->type_name("RULE")->group(group);
  command.add_flag("--no-early-stop", no_early_stop, "Decode the whole canvas past the answer's end")
      ->group(group);
  command.add_option("--seed", choices.seed, "Seed of all random choices (default 0)")
      ->type_name("N")->group(group);
}

DecodeOptions DecodeFlags::Resolve(const Engine& engine) const {
  DecodeChoices all = choices;
  if (no_early_stop) all.early_stop = false;
  return all.Resolve(engine);
}

void CacheFlags::Add(CLI::App& command) {
  std::vector<std::string> names;
  for (const CacheInfo& info : Caches()) names.push_back(info.name);
  command.add_option("--cache", name, fmt::format("Cache: {}", fmt::join(names, ", ")))
      ->type_name("NAME")->group("Cache");
  command.add_option("--cache-opt", options, "Option of the cache, key=value; may be repeated")
      ->type_name("K=V")->group("Cache");
}

CacheSpec CacheFlags::Spec() const {
  CacheSpec spec{.name = name, .options = {}};
  for (const std::string& option : options) AddOption(spec, option);
  return spec;
}

void PrintLine(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
      std::fputc('\n', stdout) == EOF || std::fflush(stdout) != 0) {
    throw Error("cannot write to the standard output");
  }
}

std::string ReadText(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("cannot open {}", path);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw Error("cannot read {}", path);
  return text;
}

std::vector<TokenId> ReadIds(const std::string& path) {
  std::istringstream in(ReadText(path));
  std::vector<TokenId> ids;
  for (std::string word; in >> word;) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size()) {
      throw Error("{}: '{}' is not a token id", path, word);
    }
    ids.push_back(id);
  }
  return ids;
}

}  // namespace spa::cli
