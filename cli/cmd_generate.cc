// spa generate: one answer.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/watch.h"
#include "engine/infill.h"
#include "engine/known_questions.h"
#include "engine/memory.h"
#include "engine/runner.h"

namespace spa::cli {
namespace {

struct GenerateFlags {
  ModelFlags model;
  DecodeFlags decode;
  CacheFlags cache;
  std::string prompt, system, file, ids_file;
  std::string template_text, template_file;
  std::optional<std::string> prefix, suffix;
  bool raw = false, watch = false, json = false;
  double pause_ms = 60.0;

  bool infills() const {
    return !template_text.empty() || !template_file.empty() || prefix || suffix;
  }
  bool asks() const { return !prompt.empty() || !file.empty() || !ids_file.empty(); }
};

// The text with gaps: a template, or what comes before and after one gap of --gen-length tokens.
std::vector<TemplatePart> Parts(const GenerateFlags& flags) {
  if (!flags.template_file.empty()) return ParseTemplate(ReadText(flags.template_file));
  if (!flags.template_text.empty()) return ParseTemplate(flags.template_text);
  size_t gap = kUsualGap;
  if (const auto& given = flags.decode.given.at("gen-length")) {
    gap = ParseTemplate("{{mask:" + *given + "}}").front().gap;
  }
  std::vector<TemplatePart> parts = {{flags.prefix.value_or(""), 0}, {{}, gap}};
  parts.push_back({flags.suffix.value_or(""), 0});
  std::erase_if(parts, [](const TemplatePart& part) { return part.gap == 0 && part.text.empty(); });
  return parts;
}

// The filled text, on terminals with what the model wrote in another colour.
std::string Filled(const Engine& engine, const Infill& infill, const Decoder& decoder,
                   bool colour) {
  const Style style(colour);
  std::string text = infill.before;
  for (const FilledPiece& piece : FilledPieces(engine, decoder)) {
    if (piece.filled) {
      text += fmt::format("{}{}{}{}", style.bold, style.green, piece.text, style.reset);
    } else {
      text += piece.text;
    }
  }
  return text + infill.after;
}

std::string GivenQuestion(const GenerateFlags& flags) {
  std::string text = flags.prompt;
  if (text.empty()) {
    if (flags.file.empty() && isatty(STDIN_FILENO) != 0) {
      PrintStderr("Type the question; Ctrl-D on an empty line ends it.\n");
    }
    text = ReadText(flags.file.empty() ? "-" : flags.file);
  }
  if (text.empty()) throw Error("the prompt is empty: give one with -p TEXT, -f FILE or on stdin");
  return text;
}

std::vector<TokenId> PromptIds(const GenerateFlags& flags, const std::string& text,
                               const Engine& engine) {
  if (flags.raw) return engine.Encode({.messages = {}, .text = text});
  Prompt prompt;
  if (!flags.system.empty()) prompt.messages.push_back({"system", flags.system});
  prompt.messages.push_back({"user", text});
  CheckKnown(engine, prompt.messages);
  return engine.Encode(prompt);
}

void PrintJson(const Engine& engine, const Generation& generation, const Infill* infill) {
  const GenerationStats stats = generation.Stats();
  nlohmann::ordered_json json = {
      {"text", infill != nullptr ? Filled(engine, *infill, generation.decoder(), false)
                                 : AnswerText(engine, generation.decoder())},
      {"ids", CanvasIds(generation.decoder())},
      {"finish_reason", stats.ended ? "stop" : "length"},
      {"prompt_tokens", stats.prompt_tokens},
      {"generated_tokens", stats.generated_tokens},
      {"steps", stats.steps},
      {"seconds", stats.seconds},
      {"ttft_seconds", stats.first_step_seconds},
      {"tokens_per_second", stats.tokens_per_second()},
      {"rows_computed", stats.rows_computed},
      {"rows_total", stats.rows_total},
      {"cache", stats.cache},
      {"cache_bytes", stats.cache_bytes},
      {"peak_memory_bytes", PeakMemoryBytes()},
  };
  if (infill != nullptr) {
    json["gaps"] = nlohmann::ordered_json::array();
    for (const FilledPiece& piece : FilledPieces(engine, generation.decoder())) {
      if (piece.filled) json["gaps"].push_back(piece.text);
    }
  }
  PrintLine(json.dump());
}

void RunGenerate(const GenerateFlags& flags) {
  // Check everything that needs no model before loading one.
  flags.cache.Check(flags.decode.Choices());
  const std::vector<TemplatePart> parts =
      flags.infills() ? Parts(flags) : std::vector<TemplatePart>();
  std::vector<TokenId> prompt;
  std::string question;
  if (!flags.ids_file.empty()) {
    prompt = ReadIds(flags.ids_file);
  } else if (!flags.infills() || flags.asks()) {
    question = GivenQuestion(flags);
  }
  const auto engine = flags.model.Load();
  if (!question.empty()) prompt = PromptIds(flags, question, *engine);
  std::optional<Infill> infill;
  if (flags.infills()) {
    infill = EncodeInfill(*engine, parts, prompt);
    prompt = infill->prompt;
  }
  const DecodeOptions options = infill
                                    ? ResolveInfill(*engine, flags.decode.Choices(), infill->given)
                                    : flags.decode.Resolve(*engine);
  const CacheSpec cache = flags.cache.Spec(*engine);
  ProgressBar bar;
  engine->set_progress([&](std::string_view what, double share) { bar.Show(what, share); });
  const SharedCache prepared = engine->PrepareCache(cache);
  bar.Clear();
  const Given given = infill ? infill->given : Given();
  CheckMemory(*engine, prompt.size() + given.suffix.size(), options, *prepared, AvailableMemory());
  Watch watch;
  Pace pace{std::chrono::milliseconds(static_cast<int64_t>(flags.watch ? flags.pause_ms : 0))};
  StepClock steps(options.steps);
  engine->transformer().set_on_layer([&](size_t done, size_t layers) {
    steps.LayerDone(done, layers);
    if (steps.quick()) return;  // steps are fast enough to need no status
    if (flags.watch) {
      watch.DrawStatus(steps.Describe());
    } else if (!flags.json) {
      bar.Show(steps.Describe(), steps.share());
    }
  });
  const auto generation = RunAlone(*engine,
                                   {.prompt = prompt,
                                    .decode = options,
                                    .cache = prepared,
                                    .warm_from = nullptr,
                                    .prefixes = nullptr,
                                    .given = given},
                                   [&](Generation& running) {
                                     steps.StepDone(running.decoder().steps());
                                     if (flags.watch) {
                                       watch.Show(*engine, running.decoder(), steps.Describe());
                                       pace.Wait();
                                     } else if (!flags.json) {
                                       bar.Show(steps.Describe(), steps.share());
                                     }
                                   });
  engine->transformer().set_on_layer({});
  bar.Clear();
  watch.Finish();
  if (flags.json) {
    PrintJson(*engine, *generation, infill ? &*infill : nullptr);
    return;
  }
  PrintLine(infill ? Filled(*engine, *infill, generation->decoder(), StdoutIsTerminal())
                   : AnswerText(*engine, generation->decoder()));
  GenerationStats stats = generation->Stats();
  if (flags.watch) stats.seconds = stats.engine_seconds;  // without the pauses
  const Style style(StderrIsTerminal());
  PrintStderr("{}{} in {:.2f} s ({:.1f} tokens/s) · {} · {:.1f}% of rows computed · cache {}{}\n",
              style.dim, Counted(stats.generated_tokens, "token"), stats.seconds,
              stats.tokens_per_second(), Counted(stats.steps, "step"),
              100.0 * stats.rows_fraction(), stats.cache, style.reset);
}

}  // namespace

void AddGenerate(CommandLine& line) {
  auto flags = std::make_shared<GenerateFlags>();
  Command command = line.Add("generate", "Answer one prompt");
  Flag prompt = command.Add("-p,--prompt", flags->prompt, "The question").Type("TEXT");
  Flag file = command.Add("-f,--file", flags->file, "Read the question from a file; - for stdin")
                  .ExistingFile()
                  .Without(prompt)
                  .Type("FILE");
  const Flag system = command.Add("--system", flags->system, "System message").Type("TEXT");
  const Flag raw =
      command.Add("--raw", flags->raw, "Use the prompt as is, without the chat template")
          .Without(system);
  command.Add("--ids", flags->ids_file, "Read the prompt as whitespace-separated token ids")
      .ExistingFile()
      .Without(prompt)
      .Without(file)
      .Without(system)
      .Without(raw)
      .Type("FILE");
  Flag text =
      command
          .Add("--template", flags->template_text,
               "Fill the gaps of a text: {{mask:12}} is a gap of twelve tokens, {{mask}} one "
               "of 16. With -p it is the text of the answer")
          .Type("TEXT");
  Flag text_file =
      command.Add("--template-file", flags->template_file, "Read such a text from a file")
          .ExistingFile()
          .Without(text)
          .Type("FILE");
  command
      .Add("--prefix", flags->prefix,
           "Fill one gap of --gen-length tokens (default 16) after this text ...")
      .Without(text)
      .Without(text_file)
      .Type("TEXT");
  command.Add("--suffix", flags->suffix, "... and before this one")
      .Without(text)
      .Without(text_file)
      .Type("TEXT");
  const Flag watch =
      command.Add("--watch", flags->watch, "Show the answer resolving; Enter skips to its end");
  command
      .Add("--pause", flags->pause_ms,
           "With --watch: show each step for at least this many milliseconds (default 60)")
      .Between(0.0, 1e4)
      .With(watch)
      .Type("MS");
  command.Add("--json", flags->json, "Print one JSON object");
  flags->model.Add(command);
  flags->decode.Add(command);
  flags->cache.Add(command);
  command.Footer(
      "Examples:\n"
      "  spa generate -p 'False or not ( True ) is' --watch\n"
      "  spa generate -m LLaDA-8B-Instruct-Q4_0.gguf -p 'Why is the sky blue?' --cache spa\n"
      "  spa generate -m Dream-v0-Instruct-7B/ -f question.txt --threshold 0.9 --json\n"
      "  spa generate -m model.gguf --prefix 'def add(a, b):' --suffix 'return c' -n 8\n"
      "  spa generate -p 'not ( True ) is' --template '=> {{mask:3}}. Answer: {{mask:1}}'");
  command.Action([flags] { RunGenerate(*flags); });
}

}  // namespace spa::cli
