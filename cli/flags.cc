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

void ModelFlags::Add(Command& command) {
  command.Add("-m,--model", model,
              "GGUF file or Hugging Face folder (default: the embedded mini model)")
      .NotEmpty()
      .Type("PATH");
  command.Add("-t,--threads", threads, "Threads to use (default: one per core)")
      .Between(1, 1024)
      .Type("N");
  command.Add("--kv", kv, "Type of cached keys and values: f32, f16, bf16")
      .OneOf(Keys(kKvTypes))
      .Type("TYPE");
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

void DecodeFlags::Add(Command& command) {
  const char* group = "Decoding";
  command.Add("-n,--gen-length", choices.gen_length, "Length of the answer's canvas (default: the model's, else 128)")
      .Type("N").Group(group);
  command.Add("--block-length", choices.block_length,
              "Decode in blocks of this many tokens (default: the model's, else LLaDA 32, or the "
              "next smaller that divides the length; Dream all)")
      .Type("N").Group(group);
  command.Add("--steps", choices.steps, "Denoising steps (default: one per token)")
      .Type("N").Group(group);
  command.Add("--remasking,--alg", choices.order,
              "What is settled first: low_confidence, random (LLaDA); entropy, "
              "maskgit_plus, topk_margin, origin (Dream); leftmost")
      .OneOf(OrderNames()).Type("ORDER").Group(group);
  command.Add("--temperature", choices.temperature, "0 takes the most likely token (default)")
      .Type("T").Group(group);
  command.Add("--top-p", choices.top_p, "Keep the most likely tokens up to this mass (Dream)")
      .Type("P").Group(group);
  command.Add("--top-k", choices.top_k, "Keep the K most likely tokens (Dream)")
      .Type("K").Group(group);
  command.Add("--alg-temp", choices.order_temperature,
              "Draw the positions to settle at this temperature (Dream)")
      .Type("T").Group(group);
  command.Add("--eps", choices.eps, "End of the time grid (Dream, default 0.001)")
      .Type("E").Group(group);
  command.Add("--cfg-scale", choices.cfg_scale, "Classifier-free guidance (default 0: off)")
      .Type("S").Group(group);
  command.Add("--threshold", choices.threshold,
              "Parallel decoding: settle every token at least this probable (try 0.9)")
      .Type("P").Group(group);
  command.Add("--factor", choices.factor, "Parallel decoding by Fast-dLLM's factor rule (try 1)")
      .Type("F").Group(group);
  command.Add("--eos", choices.eos_rule, "End tokens: free, never (chosen), last (settled)")
      .OneOf(EosRuleNames()).Type("RULE").Group(group);
  command.Add("--no-early-stop", no_early_stop, "Decode the whole canvas past the answer's end")
      .Group(group);
  command.Add("--seed", choices.seed, "Seed of all random choices (default 0)")
      .Type("N").Group(group);
}

DecodeOptions DecodeFlags::Resolve(const Engine& engine) const {
  DecodeChoices all = choices;
  if (no_early_stop) all.early_stop = false;
  return all.Resolve(engine);
}

void CacheFlags::Add(Command& command) {
  std::vector<std::string> names;
  for (const CacheInfo& info : Caches()) names.push_back(info.name);
  command.Add("--cache", name,
              fmt::format("Cache (default {}): {}", name, fmt::join(names, ", ")))
      .OneOf(names).Type("NAME").Group("Cache");
  command.Add("--cache-opt", options, "Option of the cache, key=value; may be repeated")
      .Type("K=V").Group("Cache");
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
