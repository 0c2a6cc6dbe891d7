// spa generate: one answer.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/watch.h"

namespace spa::cli {
namespace {

struct Flags {
  ModelFlags model;
  DecodeFlags decode;
  CacheFlags cache;
  std::string prompt, system, file, ids_file;
  bool raw = false, watch = false, json = false;
};

std::vector<TokenId> PromptIds(const Flags& flags, const Engine& engine) {
  if (!flags.ids_file.empty()) return ReadIds(flags.ids_file);
  std::string text = flags.prompt;
  if (text.empty()) {
    if (flags.file.empty() && isatty(STDIN_FILENO) != 0) {
      PrintStderr("Write the question; Ctrl-D on an empty line ends it.\n");
    }
    text = ReadText(flags.file.empty() ? "-" : flags.file);
  }
  if (text.empty()) throw Error("the prompt is empty: give one with -p TEXT, -f FILE or on stdin");
  if (flags.raw) return engine.Encode({.messages = {}, .text = text});
  Prompt prompt;
  if (!flags.system.empty()) prompt.messages.push_back({"system", flags.system});
  prompt.messages.push_back({"user", text});
  return engine.Encode(prompt);
}

void PrintJson(const GenerationReport& report) {
  const nlohmann::ordered_json json = {
      {"text", report.text},
      {"ids", report.ids},
      {"finish_reason", report.ended ? "stop" : "length"},
      {"prompt_tokens", report.prompt_tokens},
      {"generated_tokens", report.generated_tokens},
      {"steps", report.steps},
      {"seconds", report.seconds},
      {"ttft_seconds", report.ttft_seconds},
      {"tokens_per_second", report.tokens_per_second},
      {"rows_computed", report.rows_computed},
      {"rows_total", report.rows_total},
      {"cache", report.cache},
      {"cache_bytes", report.cache_bytes},
      {"peak_memory_bytes", report.peak_memory_bytes},
  };
  PrintLine(json.dump());
}

void Run(const Flags& flags) {
  const auto engine = flags.model.Load();
  const DecodeOptions options = flags.decode.Resolve(*engine);
  const CacheSpec cache = flags.cache.Spec();
  ProgressBar bar;
  engine->set_progress([&](std::string_view what, double share) { bar.Show(what, share); });
  const PolicyFactory policy = engine->PrepareCache(cache);
  bar.Clear();
  std::vector<std::unique_ptr<Generation>> generations;
  generations.push_back(engine->Start(PromptIds(flags, *engine), options, policy));
  Watch watch;
  const auto reports = engine->Run(generations, cache, [&](size_t, Generation& generation) {
    if (flags.watch) {
      watch.Show(*engine, generation.decoder());
    } else if (!flags.json) {
      bar.Show("decoding", static_cast<double>(generation.decoder().steps()) /
                               static_cast<double>(options.steps));
    }
  });
  bar.Clear();
  watch.Finish();
  const GenerationReport& report = reports.front();
  if (flags.json) {
    PrintJson(report);
    return;
  }
  PrintLine(report.text);
  const Style style(StderrIsTerminal());
  PrintStderr(
      "{}{} tokens in {:.2f} s ({:.1f} tokens/s) · {} steps · {:.1f}% of rows computed · "
      "cache {}{}\n",
      style.dim, report.generated_tokens, report.seconds, report.tokens_per_second, report.steps,
      100.0 * static_cast<double>(report.rows_computed) / static_cast<double>(report.rows_total),
      report.cache, style.reset);
}

}  // namespace

void AddGenerate(CommandLine& line) {
  auto flags = std::make_shared<Flags>();
  Command command = line.Add("generate", "Answer one prompt");
  Flag prompt = command.Add("-p,--prompt", flags->prompt, "The question").Type("TEXT");
  Flag file = command.Add("-f,--file", flags->file, "Read the question from a file; - for stdin")
      .ExistingFile().Without(prompt).Type("FILE");
  command.Add("--system", flags->system, "System message").Type("TEXT");
  command.Add("--raw", flags->raw, "Use the prompt as it is, without the chat template");
  command.Add("--ids", flags->ids_file, "Read the prompt as whitespace-separated token ids")
      .ExistingFile().Without(prompt).Without(file).Type("FILE");
  command.Add("--watch", flags->watch, "Show the answer resolving");
  command.Add("--json", flags->json, "Print one JSON object");
  flags->model.Add(command);
  flags->decode.Add(command);
  flags->cache.Add(command);
  command.Footer(
      "Examples:\n"
      "  spa generate -p 'False or not ( True ) is' --watch\n"
      "  spa generate -m LLaDA-8B-Instruct-Q4_0.gguf -p 'Why is the sky blue?' --cache spa\n"
      "  spa generate -m Dream-v0-Instruct-7B/ -f question.txt --threshold 0.9 --json");
  command.Action([flags] { Run(*flags); });
}

}  // namespace spa::cli
