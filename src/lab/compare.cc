#include "lab/compare.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "lab/report.h"
#include "policies/spa.h"
#include "policies/spa_budget.h"

namespace spa {
namespace {

using Json = nlohmann::ordered_json;

CacheSpec With(CacheSpec spec, const std::string& key, const std::string& value) {
  spec.options[key] = value;
  return spec;
}

// The options a rule sets, without their values: rules of one kind lie on one curve.
std::string KindOf(const std::string& rule) {
  std::string kind;
  bool value = false;
  for (const char c : rule) {
    if (c == ':') value = false;
    if (c == '=') value = true;
    if (!value) kind += c;
  }
  return kind;
}

void AddAup(std::vector<CompareRow>& rows) {
  double best = 0.0;
  for (const CompareRow& row : rows) best = std::max(best, 100.0 * *row.accuracy);
  const auto cache_of = [](const CompareRow& row) { return row.group + ": " + row.cache; };
  for (CompareRow& row : rows) {
    std::vector<ParallelPoint> points;
    for (const CompareRow& other : rows) {
      if (cache_of(other) != cache_of(row) || other.tokens_per_step > row.tokens_per_step) continue;
      if (other.rule != rows.front().rule && KindOf(other.rule) != KindOf(row.rule)) continue;
      points.push_back({other.tokens_per_step, 100.0 * *other.accuracy});
    }
    row.aup = AccuracyUnderParallelism(points, best);
  }
}

}  // namespace

std::vector<CompareEntry> AllCaches(Engine& engine) {
  const bool blocks = engine.DefaultDecodeOptions().block_attention;
  std::vector<CacheSpec> specs;
  for (const CacheInfo& info : Caches()) {
    const CacheSpec spec{.name = info.name, .options = {}};
    if (engine.PrepareCache(spec)->make()->keeps().needs_block_attention && !blocks) continue;
    specs.push_back(spec);
  }
  return Entries(specs);
}

std::vector<CompareEntry> Controls(const CacheSpec& spa) {
  std::vector<CompareEntry> entries;
  for (const char* name : {"changed", "random", "age", "local"}) {
    entries.push_back({With(spa, "identifier", name), "control", name});
  }
  return entries;
}

std::vector<CompareEntry> Entries(std::span<const CacheSpec> caches) {
  std::vector<CompareEntry> entries;
  for (const CacheSpec& cache : caches) {
    entries.push_back({.cache = cache, .group = {}, .label = cache.ToString()});
  }
  return entries;
}

std::vector<CompareEntry> AblationEntries(Engine& engine, const CacheSpec& base) {
  if (base.name != "spa") throw Error("the ablation is of the cache spa, not of {}", base.name);
  OptionReader reader(base, SpaOptionTable());
  const SpaOptions options = PrepareSpa(reader, engine.policy_context())->options;
  std::vector<CompareEntry> entries = {{CacheSpec(), "", "none"}};
  for (const char* name : {"singular", "value", "key", "query", "attn-input", "attn-output"}) {
    entries.push_back({With(base, "identifier", name), "identifier", name});
  }
  const size_t width = engine.config().kv_dim();
  for (size_t rank = 8; rank < 2 * width; rank *= 2) {
    const size_t capped = std::min(rank, width);
    const CacheSpec singular = With(base, "identifier", "singular");
    entries.push_back({With(singular, "rank", fmt::format("{}", capped)), "rank",
                       fmt::format("{}{}", capped, capped == width ? " (full)" : "")});
  }
  const double mean = MeanRatio(options.ratios);
  entries.push_back({base, "budget", fmt::format("adaptive, mean {:.1f}%", 100.0 * mean)});
  entries.push_back({With(base, "rho", fmt::format("{:.6f}", mean)), "budget",
                     fmt::format("uniform {:.1f}%", 100.0 * mean)});
  entries.push_back({With(base, "form", "update"), "form", "cached update"});
  entries.push_back({With(base, "form", "output"), "form", "cached output"});
  return entries;
}

void CheckComparable(const DecodeChoices& given) {
  if (given.exact()) {
    throw Error("exact decoding uses no cache, so there is nothing to compare: leave out exact");
  }
}

CompareRule ParseRule(const std::string& label, DecodeChoices given, const Engine& engine) {
  std::istringstream options(label == "plain" ? "" : label);
  for (std::string option; std::getline(options, option, ':');) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos) {
      throw Error("'{}' is not a rule: give plain, or options such as threshold=0.9:credit=0.7",
                  label);
    }
    given.Set(option.substr(0, equals), option.substr(equals + 1));
  }
  CheckComparable(given);
  return {label, given.Resolve(engine)};
}

std::vector<std::string> DefaultRules(const DecodeChoices& given, const Engine& engine,
                                      std::optional<double> threshold) {
  constexpr size_t kBlock = 16;
  std::vector<std::string> rules = {"plain"};
  const DecodeOptions plain = given.Resolve(engine);
  std::string blocks;
  if (plain.block_length == 1 && plain.gen_length > kBlock && plain.gen_length % kBlock == 0 &&
      !given.has("block-length")) {
    blocks = fmt::format("block-length={}", kBlock);
    rules.push_back(blocks);
  }
  if (threshold) {
    rules.push_back(fmt::format("{}{}threshold={}", blocks, blocks.empty() ? "" : ":", *threshold));
  }
  return rules;
}

Agreement CountAgreement(std::span<const TokenId> exact, std::span<const TokenId> other,
                         std::span<const TokenId> stop_ids) {
  Agreement agreement;
  for (size_t i = 0; i < exact.size(); ++i) {
    ++agreement.total;
    if (i < other.size() && other[i] == exact[i]) ++agreement.equal;
    if (std::ranges::find(stop_ids, exact[i]) != stop_ids.end()) break;
  }
  return agreement;
}

std::vector<CompareRow> CompareCaches(Engine& engine, const CompareOptions& options,
                                      std::span<const Question> questions,
                                      const Progress& progress) {
  struct Run {
    const CompareEntry* entry;
    const CompareRule* rule;
    SharedCache cache;
    size_t baseline;  // the run of `none` under the same decoding
    std::vector<Sample> samples;
  };
  if (questions.empty()) throw Error("there are no prompts to compare on");
  SPA_CHECK(!options.rules.empty());
  std::vector<CompareEntry> entries = options.entries;
  if (entries.empty() || entries[0].cache.name != "none") {
    std::erase_if(entries, [](const CompareEntry& e) { return e.cache.name == "none"; });
    entries.insert(entries.begin(), CompareEntry{CacheSpec(), "", "none"});
  }
  std::vector<Run> runs;
  for (const CompareRule& rule : options.rules) {
    const size_t baseline = runs.size();
    for (const CompareEntry& entry : entries) {
      runs.push_back({&entry, &rule, engine.PrepareCache(entry.cache), baseline,
                      std::vector<Sample>(questions.size())});
    }
  }
  const Grader grader(options.task);
  std::vector<std::vector<TokenId>> prompts;
  for (const Question& question : questions) {
    prompts.push_back(AskIds(engine, {}, question.text, false));
  }
  // Warm-up: the first pass reads the weights from disk. Not timed.
  RunAlone(engine, {prompts[0], runs[0].rule->decode, runs[0].cache});
  size_t done = 0;
  for (size_t first = 0; first < prompts.size(); first += options.batch) {
    const size_t count = std::min(options.batch, prompts.size() - first);
    for (Run& run : runs) {
      if (progress) {
        progress(run.entry->label,
                 static_cast<double>(done) / static_cast<double>(prompts.size() * runs.size()));
      }
      RunAll(
          engine, count, options.batch,
          [&](size_t index) {
            return GenerationRequest{prompts[first + index], run.rule->decode, run.cache};
          },
          [&](size_t index, Generation& generation) {
            Sample sample = SampleOf(engine, generation);
            const auto answer = grader.Extract(sample.text);
            sample.correct = answer && grader.Correct(*answer, questions[first + index].expected);
            run.samples[first + index] = std::move(sample);
          });
      done += count;
    }
  }
  const bool answers = std::ranges::none_of(
      questions, [](const Question& question) { return question.expected.empty(); });
  const double plain_speed = ScoreSamples("", runs[0].samples).tokens_per_second;
  const auto dual = std::ranges::find(
      entries, "fast-dual", [](const CompareEntry& entry) { return entry.cache.ToString(); });
  std::vector<CompareRow> rows;
  for (const Run& run : runs) {
    const Score score = ScoreSamples("", run.samples);
    Agreement sum;
    for (size_t i = 0; i < questions.size(); ++i) {
      const Agreement one = CountAgreement(runs[run.baseline].samples[i].ids, run.samples[i].ids,
                                           engine.vocabulary().stop_ids);
      sum.equal += one.equal;
      sum.total += one.total;
    }
    CompareRow& row = rows.emplace_back();
    row.group = run.entry->group;
    row.cache = run.entry->label;
    row.rule = run.rule->label;
    row.tokens_per_second = score.tokens_per_second;
    row.speedup = plain_speed > 0.0 ? score.tokens_per_second / plain_speed : 0.0;
    row.ttft_ms = 1e3 * score.ttft_seconds;
    row.steps = score.steps;
    row.rows_fraction = score.rows_fraction;
    row.tokens_per_step = score.tokens_per_step;
    row.rows_per_token = score.rows_per_token;
    row.agreement = static_cast<double>(sum.equal) / static_cast<double>(sum.total);
    row.memory_bytes = score.cache_bytes;
    if (answers) {
      row.accuracy = score.accuracy;
      row.standard_error = score.standard_error;
      row.against_none = CountPairs(runs[run.baseline].samples, run.samples);
      if (dual != entries.end()) {
        const auto place = run.baseline + static_cast<size_t>(dual - entries.begin());
        row.against_fast_dual = CountPairs(runs[place].samples, run.samples);
      }
    }
  }
  if (answers) AddAup(rows);
  return rows;
}

std::string CompareReport(std::span<const CompareRow> rows, const std::string& model,
                          size_t num_questions) {
  const auto name = [](const CompareRow& row) {
    return row.group.empty() ? row.cache : row.group + ": " + row.cache;
  };
  // `value` adds y, and an error bar if there is one, to a row's point.
  const auto plot = [&](const char* title, const char* text, const char* x_label, const auto& x,
                        const char* label, const auto& value) {
    Json series = Json::array();
    for (const CompareRow& row : rows) {
      auto found =
          std::ranges::find_if(series, [&](const Json& one) { return one["name"] == row.rule; });
      if (found == series.end()) {
        series.push_back({{"name", row.rule}, {"line", false}, {"points", Json::array()}});
        found = std::prev(series.end());
      }
      Json point = {{"x", x(row)}, {"label", name(row)}};
      value(row, point);
      (*found)["points"].push_back(std::move(point));
    }
    return Json{{"title", title},
                {"text", text},
                {"plot",
                 {{"kind", "xy"},
                  {"x", {{"label", x_label}, {"zero", true}}},
                  {"y", {{"label", label}, {"percent", true}}},
                  {"series", std::move(series)}}}};
  };
  const auto speed = [](const CompareRow& row) { return row.tokens_per_second; };
  const auto section = [&](const char* title, const char* text, const char* label,
                           const auto& value) {
    return plot(title, text, "tokens per second", speed, label, value);
  };
  const auto accuracy = [](const CompareRow& row, Json& point) {
    point["y"] = *row.accuracy;
    point["error"] = row.standard_error.value_or(0.0);
  };
  Json sections = Json::array();
  if (rows.front().accuracy) {
    sections.push_back(section(
        "Accuracy against speed",
        "Up and to the right is better. Bars are one standard error. All rows answered the same "
        "questions, so differences between rows are surer than the bars suggest.",
        "accuracy", accuracy));
    sections.push_back(plot(
        "Accuracy against rows per token",
        "Up and to the left is better: what a token costs, whatever the machine. Rows through all "
        "layers that were computed after the first step, divided by the tokens settled.",
        "rows per token", [](const CompareRow& row) { return row.rows_per_token; }, "accuracy",
        accuracy));
  }
  sections.push_back(section(
      "Agreement with none against speed",
      "The share of the tokens decoded without a cache that the cached run has too, under the same "
      "decoding.",
      "agreement", [](const CompareRow& row, Json& point) { point["y"] = row.agreement; }));
  sections.push_back(section(
      "Rows computed against speed",
      "The work behind the speed: rows that ran attention and FFN, of all rows of all steps. Even "
      "without a cache the last layer only computes rows whose logits are read.",
      "rows computed", [](const CompareRow& row, Json& point) { point["y"] = row.rows_fraction; }));
  Json table = Json::array();
  for (const CompareRow& row : rows) {
    table.push_back({name(row), row.rule, fmt::format("{:.1f}", row.tokens_per_second),
                     fmt::format("{:.2f}x", row.speedup), fmt::format("{:.1f}", row.ttft_ms),
                     fmt::format("{:.1f}", row.steps), fmt::format("{:.2f}", row.tokens_per_step),
                     fmt::format("{:.2f}", row.rows_per_token),
                     fmt::format("{:.1f}%", 100.0 * row.rows_fraction),
                     fmt::format("{:.1f}%", 100.0 * row.agreement),
                     row.accuracy ? fmt::format("{:.1f}% \u00b1 {:.1f}", 100.0 * *row.accuracy,
                                                100.0 * *row.standard_error)
                                  : "",
                     row.aup ? fmt::format("{:.0f}", *row.aup) : "",
                     fmt::format("{:.2f}", 1e-6 * static_cast<double>(row.memory_bytes))});
  }
  sections.push_back(
      {{"title", "Numbers"},
       {"table",
        {{"columns",
          {"cache", "decoding", "tokens/s", "speedup", "first token ms", "steps", "tokens/step",
           "rows/token", "rows", "agreement", "accuracy", "AUP", "memory MB"}},
         {"rows", std::move(table)}}}});
  const Json report = {{"title", "Caches side by side"},
                       {"text", fmt::format("{}, {} prompts. Speed is answer tokens per second.",
                                            model, num_questions)},
                       {"sections", std::move(sections)}};
  return ReportPage(report.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace spa
