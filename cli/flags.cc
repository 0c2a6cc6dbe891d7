#include "cli/flags.h"

#include <charconv>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>

#include "base/error.h"
#include "decode/option_table.h"

namespace spa::cli {
namespace {

const char* TypeName(const OptionInfo& info) {
  switch (info.type) {
    case OptionType::kCount:
      return "N";
    case OptionType::kReal:
      return "X";
    case OptionType::kChoice:
      return "NAME";
    case OptionType::kFlag:
      return "[on|off]";
    case OptionType::kText:
      break;
  }
  return "TEXT";
}

}  // namespace

Flag ModelFlags::Add(Command& command) {
  const Flag added = command
                         .Add("-m,--model", model,
                              "GGUF file or Hugging Face folder (default: the embedded mini model)")
                         .NotEmpty()
                         .Type("PATH");
  command.Add("-t,--threads", threads, "Threads to use (default: one per core)")
      .Between(1, 1024)
      .Type("N");
  std::vector<std::string> kv_types = {"auto"};
  for (const KvType type : kAllKvTypes) kv_types.emplace_back(NameOf(type));
  command
      .Add("--kv", kv,
           "Type of kept keys, values and updates: f32, f16, bf16, or f16-q8, which is f16 with "
           "values "
           "in 8 bits; auto is f16-q8 where weights have 8 bits or fewer, else f32 (default auto)")
      .OneOf(kv_types)
      .Type("TYPE");
  return added;
}

std::unique_ptr<Engine> ModelFlags::Load() const {
  ProgressBar bar;
  auto engine = std::make_unique<Engine>(EngineOptions{
      .model = model,
      .threads = threads,
      .kv_type = ParseKvType(kv),
      .progress = [&bar](std::string_view what, double share) { bar.Show(what, share); }});
  engine->set_progress({});
  return engine;
}

void DecodeFlags::Add(Command& command) {
  for (const DecodeOption& option : DecodeOptionTable()) {
    const OptionInfo& info = option.info;
    std::string names = (info.name == "gen-length" ? "-n,--" : "--") + info.name;
    if (!info.alias.empty()) names += ",--" + info.alias;
    std::string help = fmt::format("{} (default {})", info.help, info.fallback);
    if (info.type == OptionType::kChoice) {
      help = fmt::format("{}: {} (default {})", info.help, fmt::join(info.choices, ", "),
                         info.fallback);
    }
    Flag flag = command.Add(names, given[info.name], help);
    flag.Type(TypeName(info)).Group("Decoding");
    if (info.type == OptionType::kFlag) flag.OnOff();
  }
}

DecodeChoices DecodeFlags::Choices() const {
  DecodeChoices choices;
  for (const auto& [name, value] : given) {
    if (value) choices.Set(name, *value);
  }
  return choices;
}

DecodeOptions DecodeFlags::Resolve(const Engine& engine) const { return Choices().Resolve(engine); }

void CacheFlags::Add(Command& command) {
  std::vector<std::string> names;
  for (const CacheInfo& info : Caches()) names.push_back(info.name);
  command
      .Add("--cache", name,
           fmt::format("Cache (default: block for models with block attention, else spa): {}",
                       fmt::join(names, ", ")))
      .OneOf(names)
      .Type("NAME")
      .Group("Cache");
  command.Add("--cache-opt", options, "Option of the cache, key=value; may be repeated")
      .Type("K=V")
      .Group("Cache");
}

void CacheFlags::Check(const DecodeChoices& decode) const {
  if (decode.exact() && (name.value_or("none") != "none" || !options.empty())) {
    throw Error("exact decoding uses no cache: leave out {}",
                options.empty() ? "--cache" : "--cache-opt");
  }
  CacheSpec spec{.name = name.value_or(""), .options = {}};
  for (const std::string& option : options) AddOption(spec, option);
  if (name) CheckCaches({spec});
}

Flag QuestionFlags::Add(Command& command) {
  const Flag files =
      command.Add("--data", data, "Files with questions and answers (default: a few built-in ones)")
          .ExistingFile()
          .Type("FILE...");
  command.Add("--task", task, "Format of the data: bbh, gsm8k, jsonl (default bbh)")
      .With(files)
      .Type("NAME");
  command.Add("--limit", limit, fmt::format("Questions per file, 0 for all (default {})", limit))
      .With(files)
      .Type("N");
  return files;
}

std::vector<Question> QuestionFlags::Read(const TaskOptions& options) const {
  std::vector<Question> questions;
  for (const std::string& path : data) {
    QuestionSet set = ReadQuestions(path, options);
    if (limit > 0 && set.questions.size() > limit) set.questions.resize(limit);
    for (Question& question : set.questions) questions.push_back(std::move(question));
  }
  return questions;
}

std::vector<CacheSpec> CheckCaches(std::vector<CacheSpec> specs) {
  for (const CacheSpec& spec : specs) OptionReader(spec, FindCache(spec.name).options);
  return specs;
}

CacheSpec CacheFlags::Spec(const Engine& engine) const {
  CacheSpec spec{.name = name.value_or(engine.DefaultCache()), .options = {}};
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
