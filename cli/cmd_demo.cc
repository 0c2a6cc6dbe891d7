// spa demo: one question, answered without a cache and with one, side by side.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "base/error.h"
#include "cli/canvas.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/line_reader.h"
#include "cli/watch.h"
#include "engine/compare.h"

namespace spa::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Flags {
  ModelFlags model;
  DecodeFlags decode;
  std::string question, caches = "none,spa";
  double pause_ms = 30.0;
};

struct Runner {
  CacheSpec cache;
  std::unique_ptr<Generation> generation;
  double seconds = 0.0;  // of its own steps
};

std::string AskQuestion(const Flags& flags) {
  if (!flags.question.empty()) return flags.question;
  const std::vector<Question> suite = BuiltInQuestions();
  LineReader reader;
  std::string question;
  if (reader.interactive()) {
    question = reader.Read("Question (Enter: one of the suite): ").value_or("");
  }
  if (question.empty()) question = suite[std::random_device{}() % suite.size()].text;
  return question;
}

// Both answers, in columns of equal width.
std::vector<std::string> Columns(const Engine& engine, const std::vector<Runner>& runners,
                                 const Style& style) {
  constexpr size_t kGap = 3;
  const size_t gaps = kGap * (runners.size() - 1) + 1;
  const size_t columns = std::max(StderrSize().columns, gaps + runners.size());
  const size_t width = (columns - gaps) / runners.size();
  std::vector<Canvas> canvases;
  size_t height = 0;
  for (const Runner& runner : runners) {
    canvases.push_back(DrawAnswer(engine, runner.generation->decoder(), width, style));
    height = std::max(height, canvases.back().Lines().size());
  }
  std::vector<std::string> lines(height + 2);
  for (size_t i = 0; i < runners.size(); ++i) {
    const auto add = [&](size_t line, const std::string& text, size_t text_width) {
      lines[line] += Clip(text, width);
      if (i + 1 < runners.size()) {
        lines[line] += std::string(width - std::min(width, text_width) + kGap, ' ');
      }
    };
    const Generation& generation = *runners[i].generation;
    const std::string name = runners[i].cache.ToString();
    add(0, fmt::format("{}{}{}", style.bold, name, style.reset), DisplayWidth(name));
    const std::vector<std::string> text = canvases[i].Lines();
    for (size_t line = 0; line < height; ++line) {
      add(line + 1, line < text.size() ? text[line] : "",
          line < text.size() ? canvases[i].Width(line) : 0);
    }
    const uint64_t total = std::max<uint64_t>(1, generation.rows_total());
    const std::string status = fmt::format(
        "step {} · {:.0f}% of rows · {:.0f} ms", generation.decoder().steps(),
        100.0 * static_cast<double>(generation.rows_computed()) / static_cast<double>(total),
        runners[i].seconds * 1e3);
    add(height + 1, fmt::format("{}{}{}", style.dim, status, style.reset), DisplayWidth(status));
  }
  return lines;
}

void PrintSummary(const Engine& engine, const std::vector<Runner>& runners) {
  std::vector<std::vector<std::string>> table = {
      {"cache", "steps", "rows computed", "time", "tokens/s", "answer"}};
  std::vector<std::string> answers;
  for (const Runner& runner : runners) {
    const Decoder& decoder = runner.generation->decoder();
    answers.push_back(AnswerText(engine, decoder));
    std::string shown = answers.back();
    const size_t at = shown.rfind("Answer: ");
    if (at != std::string::npos) shown = shown.substr(at + 8);
    std::ranges::replace(shown, '\n', ' ');
    if (shown.size() > 40) shown = "(see above)";
    const auto rows = static_cast<double>(runner.generation->rows_computed());
    table.push_back({runner.cache.ToString(), std::to_string(decoder.steps()),
                     fmt::format("{} ({:.1f}%)", runner.generation->rows_computed(),
                                 100.0 * rows / static_cast<double>(runner.generation->rows_total())),
                     fmt::format("{:.0f} ms", runner.seconds * 1e3),
                     fmt::format("{:.0f}", static_cast<double>(decoder.SettledPrefix().length) /
                                               runner.seconds),
                     shown});
  }
  fmt::print("\n{}", FormatTable(table));
  for (size_t i = 1; i < runners.size(); ++i) {
    fmt::print("{} is {:.1f} times as fast as {}; the answers {}.\n", runners[i].cache.ToString(),
               runners[0].seconds / runners[i].seconds, runners[0].cache.ToString(),
               answers[i] == answers[0] ? "agree word for word" : "differ");
  }
}

void Run(const Flags& flags) {
  const std::string question = AskQuestion(flags);
  const auto engine = flags.model.Load();
  const DecodeOptions options = flags.decode.Resolve(*engine);
  Prompt prompt;
  prompt.messages.push_back({"user", question});
  const std::vector<TokenId> ids = engine->Encode(prompt);
  std::vector<Runner> runners;
  for (const CacheSpec& cache : ParseCacheList(flags.caches)) {
    const PolicyFactory policy = engine->PrepareCache(cache);
    runners.push_back({cache, engine->Start(ids, options, policy)});
    // What a first step allocates is not what the caches differ in.
    const auto warm_up = engine->Start(ids, options, policy);
    Generation* one = warm_up.get();
    StepTogether(engine->transformer(), {&one, 1});
  }
  if (runners.empty()) throw Error("--caches names no cache");
  fmt::print("Question: {}\n\n", question);
  std::fflush(stdout);
  const bool live = StderrIsTerminal();
  const Style style(live);
  Watch watch;
  // Step by step in turn, so that all resolve before one's eyes; each is timed by itself.
  for (bool running = true; running;) {
    running = false;
    for (Runner& runner : runners) {
      if (runner.generation->done()) continue;
      Generation* one = runner.generation.get();
      const auto start = Clock::now();
      StepTogether(engine->transformer(), {&one, 1});
      runner.seconds += std::chrono::duration<double>(Clock::now() - start).count();
      running = true;
    }
    if (!live || !running) continue;
    watch.Draw(Columns(*engine, runners, style));
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(flags.pause_ms));
  }
  if (live) {
    PrintStderr("\n");
  } else {
    for (const Runner& runner : runners) {
      fmt::print("{}: {}\n", runner.cache.ToString(),
                 AnswerText(*engine, runner.generation->decoder()));
    }
  }
  PrintSummary(*engine, runners);
}

}  // namespace

void AddDemo(CommandLine& line) {
  auto flags = std::make_shared<Flags>();
  Command command =
      line.Add("demo", "One question, with and without SPA-Cache, side by side");
  command.Add("question", flags->question, "The question (default: asks for one)")
      .Type("TEXT");
  command.Add("--caches", flags->caches, "What to compare (default none,spa)")
      .Type("LIST");
  command.Add("--pause", flags->pause_ms,
              "Milliseconds between steps, so that eyes can follow (default 30)")
      .Between(0.0, 1e4).Type("MS");
  flags->model.Add(command);
  flags->decode.Add(command);
  command.Footer(
      "Examples:\n"
      "  spa demo\n"
      "  spa demo 'not ( True and False ) or False is'\n"
      "  spa demo --caches none,spa,fast-dual --pause 100");
  command.Action([flags] { Run(*flags); });
}

}  // namespace spa::cli
