// spa eval: accuracy on the questions of a benchmark file.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/flags.h"
#include "engine/memory.h"
#include "lab/choices.h"
#include "lab/eval.h"

namespace spa::cli {
namespace {

struct EvalFlags {
  ModelFlags model;
  DecodeFlags decode;
  CacheFlags cache;
  std::string task = "bbh", samples;
  std::vector<std::string> data;
  TaskOptions fields;
  std::string choices_field = "choices", estimator = "auto";
  size_t limit = 0, few_shot = 0, batch = 1, draws = 32;
  bool raw = false, warm = false, json = false, end_token = false;
};

nlohmann::ordered_json ToJson(const ChoiceScore& score) {
  return {{"name", score.name},
          {"count", score.count},
          {"accuracy", score.accuracy},
          {"stderr", score.standard_error},
          {"accuracy_norm", score.normalised},
          {"stderr_norm", score.normalised_error},
          {"log_probability_stderr", score.noise}};
}

std::vector<std::string> TableRow(const ChoiceScore& score) {
  return {score.name,
          fmt::format("{}", score.count),
          fmt::format("{:.2f}%", 100.0 * score.accuracy),
          fmt::format("± {:.2f}", 100.0 * score.standard_error),
          fmt::format("{:.2f}%", 100.0 * score.normalised),
          fmt::format("± {:.2f}", 100.0 * score.normalised_error),
          fmt::format("± {:.3f}", score.noise)};
}

// The bar of a run: how many are done, and how many of them are right.
void ShowProgress(ProgressBar& bar, size_t done, size_t total, size_t correct) {
  const double ratio = done > 0 ? static_cast<double>(correct) / static_cast<double>(done) : 0.0;
  bar.Show(fmt::format("{}/{} · {:.1f}% ± {:.1f} correct", done, total, 100.0 * ratio,
                       100.0 * StandardError(ratio, done)),
           static_cast<double>(done) / static_cast<double>(total));
}

void RunChoices(const EvalFlags& flags) {
  ChoiceEvalOptions options;
  options.fields = {flags.fields.question_field, flags.choices_field, flags.fields.answer_field};
  options.data.assign(flags.data.begin(), flags.data.end());
  options.limit = flags.limit;
  options.few_shot = flags.few_shot;
  options.raw = flags.raw;
  options.samples = flags.samples;
  options.likelihood.estimator = ParseEstimator(flags.estimator);
  options.likelihood.draws = flags.draws;
  options.likelihood.end_token = flags.end_token;
  const auto engine = flags.model.Load();
  options.likelihood.seed = flags.decode.Resolve(*engine).seed;
  ProgressBar bar;
  const ChoiceResult result = EvaluateChoices(
      *engine, options,
      [&](size_t done, size_t total, size_t correct) { ShowProgress(bar, done, total, correct); });
  bar.Clear();
  if (flags.json) {
    nlohmann::ordered_json json = {{"model", engine->config().name},
                                   {"task", flags.task},
                                   {"settings", nlohmann::ordered_json::parse(result.settings)},
                                   {"rows", nlohmann::ordered_json::array()}};
    for (const ChoiceScore& score : result.scores) json["rows"].push_back(ToJson(score));
    json["total"] = ToJson(result.total);
    json["resumed"] = result.resumed;
    json["seconds"] = result.seconds;
    PrintLine(json.dump());
    return;
  }
  std::vector<std::vector<std::string>> table = {
      {"data", "n", "accuracy", "", "per character", "", "ln p"}};
  for (const ChoiceScore& score : result.scores) table.push_back(TableRow(score));
  if (result.scores.size() > 1) table.push_back(TableRow(result.total));
  std::string text = FormatTable(table);
  text += fmt::format("estimator {} · {:.1f} s", flags.estimator, result.seconds);
  if (result.resumed > 0) {
    text +=
        fmt::format(" · {} of {} read from {}", result.resumed, result.total.count, flags.samples);
  }
  PrintLine(text);
}

nlohmann::ordered_json ToJson(const Score& score) {
  return {{"name", score.name},
          {"count", score.count},
          {"correct", score.correct},
          {"accuracy", score.accuracy},
          {"stderr", score.standard_error},
          {"tokens_per_second", score.tokens_per_second},
          {"ttft_ms", 1e3 * score.ttft_seconds},
          {"seconds", score.seconds},
          {"steps", score.steps},
          {"rows_fraction", score.rows_fraction},
          {"tokens_per_step", score.tokens_per_step},
          {"rows_per_token", score.rows_per_token},
          {"cache_bytes", score.cache_bytes}};
}

std::vector<std::string> TableRow(const Score& score) {
  return {score.name,
          fmt::format("{}", score.count),
          fmt::format("{}", score.correct),
          fmt::format("{:.2f}%", 100.0 * score.accuracy),
          fmt::format("± {:.2f}", 100.0 * score.standard_error),
          fmt::format("{:.1f}", score.tokens_per_second),
          fmt::format("{:.1f}", 1e3 * score.ttft_seconds),
          fmt::format("{:.1f}", score.steps),
          fmt::format("{:.1f}%", 100.0 * score.rows_fraction)};
}

void RunEval(const EvalFlags& flags) {
  if (flags.task == "choices") return RunChoices(flags);
  EvalOptions options;
  options.task = flags.fields;
  options.task.kind = ParseTaskKind(flags.task);
  options.data.assign(flags.data.begin(), flags.data.end());
  options.limit = flags.limit;
  options.few_shot = flags.few_shot;
  options.warm = flags.warm;
  options.batch = flags.batch;
  options.raw = flags.raw;
  options.samples = flags.samples;
  flags.cache.Check(flags.decode.Choices());
  const auto engine = flags.model.Load();
  options.cache = flags.cache.Spec(*engine);
  options.decode = flags.decode.Resolve(*engine);
  ProgressBar bar;
  engine->set_progress([&](std::string_view what, double share) { bar.Show(what, share); });
  const EvalResult result = Evaluate(
      *engine, options,
      [&](size_t done, size_t total, size_t correct) { ShowProgress(bar, done, total, correct); });
  bar.Clear();
  if (flags.json) {
    nlohmann::ordered_json json = {{"model", engine->config().name},
                                   {"task", flags.task},
                                   {"cache", options.cache.ToString()},
                                   {"settings", nlohmann::ordered_json::parse(result.settings)},
                                   {"rows", nlohmann::ordered_json::array()}};
    for (const Score& score : result.scores) json["rows"].push_back(ToJson(score));
    json["total"] = ToJson(result.total);
    json["resumed"] = result.resumed;
    json["peak_memory_bytes"] = PeakMemoryBytes();
    PrintLine(json.dump());
    return;
  }
  std::vector<std::vector<std::string>> table = {
      {"data", "n", "correct", "accuracy", "", "tokens/s", "ttft ms", "steps", "rows"}};
  for (const Score& score : result.scores) table.push_back(TableRow(score));
  if (result.scores.size() > 1) table.push_back(TableRow(result.total));
  std::string text = FormatTable(table);
  text += fmt::format("cache {} · {:.1f} s in the engine · {} per sequence · peak memory {}",
                      options.cache.ToString(), result.total.seconds,
                      FormatBytes(result.total.cache_bytes), FormatBytes(PeakMemoryBytes()));
  if (result.resumed > 0) {
    text +=
        fmt::format(" · {} of {} read from {}", result.resumed, result.total.count, flags.samples);
  }
  PrintLine(text);
}

}  // namespace

void AddEval(CommandLine& line) {
  auto flags = std::make_shared<EvalFlags>();
  Command command = line.Add("eval", "Measure accuracy on the questions of a file");
  command
      .Add("--task", flags->task,
           "bbh (JSON with examples), gsm8k, jsonl (lines with question and answer), choices (the "
           "most probable choice; nothing is generated)")
      .Type("NAME");
  command.Add("--data", flags->data, "Files with the questions")
      .Required()
      .ExistingFile()
      .Type("FILE...");
  command
      .Add("--extract", flags->fields.extract,
           "Regular expression for the answer: its last match counts, or the first group of that "
           "match (default for bbh: what follows the last \"Answer:\"; gsm8k: the last number; "
           "jsonl: the whole answer)")
      .Type("REGEX");
  command
      .Add("--question-field", flags->fields.question_field,
           "Field that holds the question (default question)")
      .Type("NAME");
  command
      .Add("--answer-field", flags->fields.answer_field,
           "Field that holds the answer (default answer)")
      .Type("NAME");
  command
      .Add("--choices-field", flags->choices_field,
           "Field that holds the choices, for --task choices (default choices)")
      .Type("NAME");
  command
      .Add(
          "--estimator", flags->estimator,
          "How --task choices estimates likelihoods: llada or dream (draws), enumerate (exact, for "
          "a few tokens), chain (left to right), auto (enumerate if that is no more work than the "
          "draws; default)")
      .Type("NAME");
  command.Add("--draws", flags->draws, "Draws per likelihood (default 32; papers use 128)")
      .Between(16, 65536)
      .Type("N");
  command.Add("--end-token", flags->end_token,
              "Put the end-of-text token after every choice, as Dream's evaluation does");
  command.Add("--limit", flags->limit, "Questions per file (default: all)").Type("N");
  command
      .Add("--few-shot", flags->few_shot,
           "Use the first N questions of a file as solved examples; they are not scored")
      .Type("N");
  command.Add("--batch", flags->batch, "Questions decoded together (default 1)")
      .Between(1, 1024)
      .Type("N");
  command.Add("--raw", flags->raw, "Ask without the chat template");
  command.Add("--warm", flags->warm,
              "Compute the --few-shot examples once per file, not for each question; an "
              "approximation, with --cache spa");
  command
      .Add("--samples", flags->samples,
           "Append a line per finished question to this file; an interrupted run resumes from it")
      .Type("FILE");
  command.Add("--json", flags->json, "Print one JSON object");
  flags->model.Add(command);
  flags->decode.Add(command);
  flags->cache.Add(command);
  command.Footer(
      "Examples:\n"
      "  spa eval --task bbh --data bbh/boolean_expressions.json --cache spa\n"
      "  spa eval -m LLaDA-8B-Instruct-Q4_0.gguf --task gsm8k --data gsm8k/test.jsonl \\\n"
      "      --few-shot 4 -n 256 --samples gsm8k-spa.jsonl --cache spa\n"
      "  spa eval -m LLaDA-8B-Base-Q4_0.gguf --task choices --raw --data arc/test.jsonl \\\n"
      "      --answer-field answerKey --draws 128");
  command.Action([flags] { RunEval(*flags); });
}

}  // namespace spa::cli
