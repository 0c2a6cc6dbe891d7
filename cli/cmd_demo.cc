// spa demo: one question, answered without a cache and with one, side by side.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "base/error.h"
#include "cli/canvas.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/line_reader.h"
#include "cli/watch.h"
#include "engine/known_questions.h"
#include "engine/runner.h"
#include "lab/compare.h"
#include "lab/questions.h"

namespace spa::cli {
namespace {

struct DemoFlags {
  ModelFlags model;
  DecodeFlags decode;
  std::string question, caches = "none,spa";
  double pause_ms = 60.0;
};

// One cache's answer.
struct Side {
  Side(Engine& engine, const GenerationRequest& asked)
      : request(asked), runner(engine), generation(runner.Add(asked)) {}

  GenerationStats stats() const { return generation.Stats(); }

  GenerationRequest request;
  Runner runner;
  Generation& generation;
  double seconds = 0.0;
};
using Sides = std::vector<std::unique_ptr<Side>>;

std::string AskQuestion(const DemoFlags& flags) {
  if (!flags.question.empty()) return flags.question;
  const std::vector<Question> suite = BuiltInQuestions();
  LineReader reader;
  std::string question;
  if (reader.interactive()) {
    question = reader.Read("Question (Enter for a sample): ").value_or("");
  }
  if (question.empty()) question = suite[std::random_device{}() % suite.size()].text;
  return question;
}

// Both answers, in columns of equal width.
std::vector<std::string> Columns(const Engine& engine, const Sides& sides, const Style& style) {
  constexpr size_t kGap = 3;
  const size_t gaps = kGap * (sides.size() - 1) + 1;
  const size_t columns = std::max(StderrSize().columns, gaps + sides.size());
  const size_t width = (columns - gaps) / sides.size();
  std::vector<Canvas> canvases;
  size_t height = 0;
  for (const auto& side : sides) {
    canvases.push_back(DrawAnswer(engine, side->generation.decoder(), width, style));
    height = std::max(height, canvases.back().Lines().size());
  }
  std::vector<std::string> lines(height + 2);
  for (size_t i = 0; i < sides.size(); ++i) {
    const auto add = [&](size_t line, const std::string& text, size_t text_width) {
      lines[line] += Clip(text, width);
      if (i + 1 < sides.size()) {
        lines[line] += std::string(width - std::min(width, text_width) + kGap, ' ');
      }
    };
    const GenerationStats stats = sides[i]->stats();
    add(0, fmt::format("{}{}{}", style.bold, stats.cache, style.reset), DisplayWidth(stats.cache));
    const std::vector<std::string> text = canvases[i].Lines();
    for (size_t line = 0; line < height; ++line) {
      add(line + 1, line < text.size() ? text[line] : "",
          line < text.size() ? canvases[i].Width(line) : 0);
    }
    const std::string status =
        fmt::format("step {} · {:.0f}% of rows", stats.steps, 100.0 * stats.rows_fraction());
    add(height + 1, fmt::format("{}{}{}", style.dim, status, style.reset), DisplayWidth(status));
  }
  return lines;
}

// A step of a small model is shorter than waking up from a pause. So short answers are timed again
// without pauses, and the fastest run counts.
void TimeSides(Engine& engine, Sides& sides) {
  constexpr double kShort = 0.5;  // seconds
  constexpr int kRounds = 5;
  for (const auto& side : sides) side->seconds = side->stats().engine_seconds;
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& side : sides) {
      if (side->seconds > kShort) continue;
      Side again(engine, side->request);
      while (!again.generation.done()) again.runner.Step();
      side->seconds = std::min(side->seconds, again.stats().engine_seconds);
    }
  }
}

void PrintSummary(const Engine& engine, const Sides& sides) {
  std::vector<std::vector<std::string>> table = {
      {"cache", "steps", "rows computed", "time", "tokens/s", "answer"}};
  std::vector<std::string> answers;
  for (const auto& side : sides) {
    const GenerationStats stats = side->stats();
    answers.push_back(AnswerText(engine, side->generation.decoder()));
    std::string shown = answers.back();
    const size_t at = shown.rfind("Answer: ");
    if (at != std::string::npos) shown = shown.substr(at + 8);
    std::ranges::replace(shown, '\n', ' ');
    if (shown.size() > 40) shown = "(see above)";
    table.push_back(
        {stats.cache, std::to_string(stats.steps),
         fmt::format("{} ({:.1f}%)", stats.rows_computed, 100.0 * stats.rows_fraction()),
         fmt::format("{:.0f} ms", side->seconds * 1e3),
         fmt::format("{:.0f}", static_cast<double>(stats.generated_tokens) / side->seconds),
         shown});
  }
  fmt::print("\n{}", FormatTable(table));
  for (size_t i = 1; i < sides.size(); ++i) {
    fmt::print("{} is {:.1f} times as fast as {}; the answers {}.\n", sides[i]->stats().cache,
               sides[0]->seconds / sides[i]->seconds, sides[0]->stats().cache,
               answers[i] == answers[0] ? "agree word for word" : "differ");
  }
}

void RunDemo(const DemoFlags& flags) {
  CheckComparable(flags.decode.Choices());
  const std::vector<CacheSpec> caches = CheckCaches(ParseCacheList(flags.caches));
  if (caches.empty()) throw Error("--caches names no cache");
  const std::string question = AskQuestion(flags);
  const auto engine = flags.model.Load();
  const DecodeOptions options = flags.decode.Resolve(*engine);
  Prompt prompt;
  prompt.messages.push_back({"user", question});
  CheckKnown(*engine, prompt.messages);
  const std::vector<TokenId> ids = engine->Encode(prompt);
  Sides sides;
  for (const CacheSpec& spec : caches) {
    const SharedCache cache = engine->PrepareCache(spec);
    // Warm-up, untimed: the first step allocates memory, which has nothing to do with the caches.
    Side(*engine, {ids, options, cache}).runner.Step();
    sides.push_back(std::make_unique<Side>(*engine, GenerationRequest{ids, options, cache}));
  }
  // Some puzzles begin with the word themselves.
  fmt::print("{}{}\n\n", question.starts_with("Question:") ? "" : "Question: ", question);
  std::fflush(stdout);
  const bool live = StderrIsTerminal();
  const Style style(live);
  Watch watch;
  Pace pace{std::chrono::milliseconds(static_cast<int64_t>(flags.pause_ms))};
  // In turn, step by step, so that all answers resolve together on the screen.
  for (bool running = true; running;) {
    running = false;
    for (const auto& side : sides) {
      if (side->generation.done()) continue;
      side->runner.Step();
      running = true;
    }
    if (!live || !running) continue;
    watch.Draw(Columns(*engine, sides, style));
    pace.Wait();
  }
  if (live) {
    PrintStderr("\n");
  } else {
    for (const auto& side : sides) {
      fmt::print("{}: {}\n", side->stats().cache, AnswerText(*engine, side->generation.decoder()));
    }
  }
  TimeSides(*engine, sides);
  PrintSummary(*engine, sides);
}

}  // namespace

void AddDemo(CommandLine& line) {
  auto flags = std::make_shared<DemoFlags>();
  Command command = line.Add("demo", "One question, with and without SPA-Cache, side by side");
  command.Add("question", flags->question, "The question (default: asks for one)").Type("TEXT");
  command.Add("--caches", flags->caches, "What to compare (default none,spa)").Type("LIST");
  command
      .Add("--pause", flags->pause_ms,
           "Show each step for at least this many milliseconds; Enter skips (default 60)")
      .Between(0.0, 1e4)
      .Type("MS");
  flags->model.Add(command);
  flags->decode.Add(command);
  command.Footer(
      "Examples:\n"
      "  spa demo\n"
      "  spa demo 'not ( True and False ) or False is'\n"
      "  spa demo --caches none,spa,fast-dual --block-length 16 --pause 100");
  command.Action([flags] { RunDemo(*flags); });
}

}  // namespace spa::cli
