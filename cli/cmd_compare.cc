// spa compare: every cache on the same prompts.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/atomic_file.h"
#include "base/counted.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "engine/memory.h"
#include "lab/compare.h"
#include "lab/report.h"

namespace spa::cli {
namespace {

struct CompareFlags {
  ModelFlags model;
  DecodeFlags decode;
  QuestionFlags questions;
  std::string caches, rules, prompts, report;
  TaskOptions fields;
  size_t batch = 1;
  bool parallel = false, ablation = false, controls = false, json = false, markdown = false;
};

std::vector<Question> ReadAll(const CompareFlags& flags, const TaskOptions& task) {
  std::vector<Question> questions = flags.questions.Read(task);
  if (!flags.prompts.empty()) {
    std::istringstream lines(ReadText(flags.prompts));
    for (std::string line; std::getline(lines, line);) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      questions.push_back({.id = {}, .text = line, .worked = {}, .expected = {}});
    }
    if (questions.empty()) throw Error("{} holds no prompts, one per line", flags.prompts);
  }
  return questions.empty() ? BuiltInQuestions() : questions;
}

std::vector<std::string> TableRow(const CompareRow& row) {
  std::vector<std::string> cells = {row.group.empty() ? row.cache : row.group + ": " + row.cache,
                                    row.rule,
                                    fmt::format("{:.1f}", row.tokens_per_second),
                                    fmt::format("{:.2f}x", row.speedup),
                                    fmt::format("{:.1f}", row.ttft_ms),
                                    fmt::format("{:.1f}", row.steps),
                                    fmt::format("{:.2f}", row.tokens_per_step),
                                    fmt::format("{:.2f}", row.rows_per_token),
                                    fmt::format("{:.1f}%", 100.0 * row.rows_fraction),
                                    fmt::format("{:.1f}%", 100.0 * row.agreement)};
  if (row.accuracy) {
    cells.push_back(
        fmt::format("{:.1f}% ± {:.1f}", 100.0 * *row.accuracy, 100.0 * *row.standard_error));
    cells.push_back(fmt::format("{:.0f}", *row.aup));
    for (const auto& pairs : {row.against_none, row.against_fast_dual}) {
      cells.push_back(
          pairs ? fmt::format("-{} +{}, p {:.2g}", pairs->lost, pairs->won, pairs->p_value()) : "");
    }
  }
  cells.push_back(FormatBytes(row.memory_bytes));
  return cells;
}

std::string Markdown(const std::vector<std::vector<std::string>>& table) {
  std::string text;
  for (size_t i = 0; i < table.size(); ++i) {
    text += fmt::format("| {} |\n", fmt::join(table[i], " | "));
    if (i > 0) continue;
    text += "| ---";
    for (size_t column = 1; column < table[0].size(); ++column) text += " | ---:";
    text += " |\n";
  }
  return text;
}

nlohmann::ordered_json ToJson(const CompareRow& row) {
  const auto optional = [](const std::optional<double>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json json = {{"cache", row.cache},
                                 {"rule", row.rule},
                                 {"tokens_per_second", row.tokens_per_second},
                                 {"speedup", row.speedup},
                                 {"ttft_ms", row.ttft_ms},
                                 {"steps", row.steps},
                                 {"tokens_per_step", row.tokens_per_step},
                                 {"rows_per_token", row.rows_per_token},
                                 {"aup", optional(row.aup)},
                                 {"rows_fraction", row.rows_fraction},
                                 {"agreement", row.agreement},
                                 {"accuracy", optional(row.accuracy)},
                                 {"stderr", optional(row.standard_error)},
                                 {"memory_bytes", row.memory_bytes}};
  if (!row.group.empty()) json["group"] = row.group;
  const auto pairs = [&](const char* name, const std::optional<Pairs>& value) {
    if (!value) return;
    json[name] = {{"lost", value->lost}, {"won", value->won}, {"p", value->p_value()}};
  };
  pairs("against_none", row.against_none);
  pairs("against_fast_dual", row.against_fast_dual);
  return json;
}

std::vector<CompareRule> Rules(const CompareFlags& flags, const Engine& engine) {
  const DecodeChoices given = flags.decode.Choices();
  constexpr double kThreshold = 0.9;
  std::vector<std::string> labels;
  if (flags.rules.empty()) {
    labels = DefaultRules(given, engine, flags.parallel ? std::optional(kThreshold) : std::nullopt);
  } else {
    std::istringstream list(flags.rules);
    for (std::string label; std::getline(list, label, ',');) labels.push_back(label);
    if (flags.parallel) labels.push_back(fmt::format("threshold={}", kThreshold));
  }
  std::vector<CompareRule> rules;
  rules.reserve(labels.size());
  for (const std::string& label : labels) rules.push_back(ParseRule(label, given, engine));
  return rules;
}

void RunCompare(const CompareFlags& flags) {
  CompareOptions options;
  options.task = flags.fields;
  options.task.kind = ParseTaskKind(flags.questions.task);
  const std::vector<Question> questions = ReadAll(flags, options.task);
  const std::vector<CacheSpec> chosen = CheckCaches(ParseCacheList(flags.caches));
  CheckComparable(flags.decode.Choices());
  if (flags.ablation && chosen.size() > 1) {
    throw Error("--ablation varies one setting of spa: give one cache, e.g. --caches spa:rank=16");
  }
  std::optional<AtomicFile> report;  // opened before the run: a bad path fails at once
  if (!flags.report.empty()) report.emplace(flags.report);
  const auto engine = flags.model.Load();
  options.rules = Rules(flags, *engine);
  options.batch = flags.batch;
  ProgressBar bar;
  const auto show = [&](std::string_view what, double share) { bar.Show(what, share); };
  engine->set_progress(show);
  if (flags.ablation) {
    options.entries =
        AblationEntries(*engine, chosen.empty() ? ParseCacheSpec("spa") : chosen.front());
  } else {
    options.entries = chosen.empty() ? AllCaches(*engine) : Entries(chosen);
  }
  if (flags.controls) {
    const auto base = std::ranges::find(chosen, "spa", &CacheSpec::name);
    for (CompareEntry& entry : Controls(base != chosen.end() ? *base : ParseCacheSpec("spa"))) {
      options.entries.push_back(std::move(entry));
    }
  }
  const std::vector<CompareRow> rows = CompareCaches(*engine, options, questions, show);
  bar.Clear();
  if (report) {
    const std::string page = CompareReport(rows, engine->config().name, questions.size());
    report->Write(page.data(), page.size());
    report->Commit();
  }
  if (flags.json) {
    nlohmann::ordered_json json = {{"model", engine->config().name},
                                   {"prompts", questions.size()},
                                   {"batch", options.batch},
                                   {"rows", nlohmann::ordered_json::array()}};
    for (const CompareRow& row : rows) json["rows"].push_back(ToJson(row));
    json["peak_memory_bytes"] = PeakMemoryBytes();
    PrintLine(json.dump());
    return;
  }
  std::vector<std::vector<std::string>> table = {{"cache", "rule", "tokens/s", "speedup", "ttft ms",
                                                  "steps", "tokens/step", "rows/token", "rows",
                                                  "agreement"}};
  if (rows.front().accuracy) {
    for (const char* name : {"accuracy", "AUP", "against none", "against fast-dual"}) {
      table[0].emplace_back(name);
    }
  }
  table[0].push_back("memory");
  for (const CompareRow& row : rows) table.push_back(TableRow(row));
  std::string text = flags.markdown ? Markdown(table) + "\n" : FormatTable(table);
  const DecodeOptions& first = options.rules.front().decode;
  text += fmt::format("{}, canvas {}, blocks of {}, batch {}, {}{}",
                      Counted(questions.size(), "prompt"), first.gen_length, first.block_length,
                      options.batch, Counted(engine->pool().num_threads(), "thread"),
                      flags.report.empty() ? "" : ", report in " + flags.report);
  if (first.block_length == 1) {
    text += fmt::format(
        "\nIn blocks of 1 token, caches that refresh with every block compute every row in every "
        "step{}.",
        options.rules.size() > 1 ? "" : "; try --block-length 16");
  }
  PrintLine(text);
}

}  // namespace

void AddCompare(CommandLine& line) {
  auto flags = std::make_shared<CompareFlags>();
  Command command = line.Add("compare", "Run every cache on the same prompts");
  std::vector<std::string> names;
  for (const CacheInfo& info : Caches()) names.push_back(info.name);
  command
      .Add("--caches", flags->caches,
           fmt::format("Caches, with options as NAME:key=value (default: all): {}",
                       fmt::join(names, ", ")))
      .Type("A,B,...");
  command
      .Add("--rules", flags->rules,
           "Decoding rules, each run with every cache: plain, or options such as "
           "threshold=0.9:credit=0.7 (default plain; also block-length=16 if the model decodes "
           "token by token)")
      .Type("A,B,...");
  const Flag data = flags->questions.Add(command);
  command
      .Add("--extract", flags->fields.extract, "Regular expression for the answer (see spa eval)")
      .Type("REGEX");
  command.Add("--prompts", flags->prompts, "File with a prompt per line, without answers")
      .Without(data)
      .Type("FILE");
  command.Add("--batch", flags->batch, "Prompts decoded together (default 1)")
      .Between(1, 1024)
      .Type("N");
  command.Add("--parallel", flags->parallel, "Add the rule threshold=0.9");
  command.Add("--ablation", flags->ablation,
              "Ablate SPA-Cache: identifiers, ranks, budgets, reused update or output");
  command.Add("--controls", flags->controls,
              "Add controls: the budget of SPA-Cache spent on rows chosen by whether their input "
              "changed, at random, by age, or by distance to the block");
  command.Add("--markdown", flags->markdown, "Print the table in Markdown");
  command.Add("--report", flags->report, "Write an HTML page with plots").Type("FILE");
  command.Add("--json", flags->json, "Print one JSON object");
  flags->model.Add(command);
  flags->decode.Add(command);
  command.Footer(
      "Examples:\n"
      "  spa compare --caches none,spa,spa:rho-peak=0.5 --parallel\n"
      "  spa compare --caches none,spa --rules plain,threshold=0.9,entropy-bound=0.1\n"
      "  spa compare --data bbh/navigate.json bbh/web_of_lies.json --limit 0 --report caches.html\n"
      "  spa compare --ablation --data bbh/boolean_expressions.json --markdown");
  command.Action([flags] { RunCompare(*flags); });
}

}  // namespace spa::cli
