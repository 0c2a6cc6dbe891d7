#include "lab/compare.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "lab/report.h"
#include "policies/spa.h"
#include "policies/spa_budget.h"

namespace spa {
namespace {

CacheSpec With(CacheSpec spec, const std::string& key, const std::string& value) {
  spec.options[key] = value;
  return spec;
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
    DecodeOptions decode;
    SharedCache cache;
    size_t baseline;  // the run of `none` under the same decoding
    std::vector<Sample> samples;
  };
  if (questions.empty()) throw Error("there are no prompts to compare on");
  std::vector<CompareEntry> entries = options.entries;
  if (entries.empty() || entries[0].cache.name != "none") {
    std::erase_if(entries, [](const CompareEntry& e) { return e.cache.name == "none"; });
    entries.insert(entries.begin(), CompareEntry{CacheSpec(), "", "none"});
  }
  std::vector<Run> runs;
  for (const bool parallel : {false, true}) {
    if (parallel && !options.parallel) break;
    const size_t baseline = runs.size();
    for (const CompareEntry& entry : entries) {
      Run run{&entry, options.decode, engine.PrepareCache(entry.cache), baseline, {}};
      if (parallel) {
        run.decode.factor.reset();
        run.decode.threshold = options.threshold;
      }
      run.samples.resize(questions.size());
      runs.push_back(std::move(run));
    }
  }
  const Grader grader(options.task);
  std::vector<std::vector<TokenId>> prompts;
  for (const Question& question : questions) {
    prompts.push_back(AskIds(engine, {}, question.text, false));
  }
  // The first pass reads the weights from the disk and fills the processor's caches: not timed.
  RunAlone(engine, {prompts[0], runs[0].decode, runs[0].cache});
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
            return GenerationRequest{prompts[first + index], run.decode, run.cache};
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
    row.threshold = run.decode.threshold;
    row.tokens_per_second = score.tokens_per_second;
    row.speedup = plain_speed > 0.0 ? score.tokens_per_second / plain_speed : 0.0;
    row.ttft_ms = 1e3 * score.ttft_seconds;
    row.steps = score.steps;
    row.rows_fraction = score.rows_fraction;
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
  return rows;
}

std::string CompareReport(std::span<const CompareRow> rows, const std::string& model,
                          size_t num_questions) {
  using Json = nlohmann::ordered_json;
  const auto name = [](const CompareRow& row) {
    return row.group.empty() ? row.cache : row.group + ": " + row.cache;
  };
  // `value` adds y, and an error bar if there is one, to a row's point.
  const auto section = [&](const char* title, const char* text, const char* label,
                           const auto& value) {
    Json plain = {{"name", "one token per step"}, {"line", false}, {"points", Json::array()}};
    Json parallel = {{"name", "parallel decoding"}, {"line", false}, {"points", Json::array()}};
    for (const CompareRow& row : rows) {
      Json point = {{"x", row.tokens_per_second}, {"label", name(row)}};
      value(row, point);
      (row.threshold ? parallel : plain)["points"].push_back(std::move(point));
    }
    Json series = Json::array({std::move(plain)});
    if (!parallel["points"].empty()) series.push_back(std::move(parallel));
    return Json{{"title", title},
                {"text", text},
                {"plot",
                 {{"kind", "xy"},
                  {"x", {{"label", "tokens per second"}, {"zero", true}}},
                  {"y", {{"label", label}, {"percent", true}}},
                  {"series", std::move(series)}}}};
  };
  Json sections = Json::array();
  if (rows.front().accuracy) {
    sections.push_back(section(
        "Accuracy against speed",
        "Up and to the right is better. Bars are one standard error. All rows answered the same "
        "questions, so differences between rows are surer than the bars suggest.",
        "accuracy", [](const CompareRow& row, Json& point) {
          point["y"] = *row.accuracy;
          point["error"] = row.standard_error.value_or(0.0);
        }));
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
    table.push_back(
        {name(row), row.threshold ? fmt::format("parallel {:.2g}", *row.threshold) : "plain",
         fmt::format("{:.1f}", row.tokens_per_second), fmt::format("{:.2f}x", row.speedup),
         fmt::format("{:.1f}", row.ttft_ms), fmt::format("{:.1f}", row.steps),
         fmt::format("{:.1f}%", 100.0 * row.rows_fraction),
         fmt::format("{:.1f}%", 100.0 * row.agreement),
         row.accuracy ? fmt::format("{:.1f}% \u00b1 {:.1f}", 100.0 * *row.accuracy,
                                    100.0 * *row.standard_error)
                      : "",
         fmt::format("{:.2f}", 1e-6 * static_cast<double>(row.memory_bytes))});
  }
  sections.push_back({{"title", "Numbers"},
                      {"table",
                       {{"columns",
                         {"cache", "decoding", "tokens/s", "speedup", "first token ms", "steps",
                          "rows", "agreement", "accuracy", "memory MB"}},
                        {"rows", std::move(table)}}}});
  const Json report = {{"title", "Caches side by side"},
                       {"text", fmt::format("{}, {} prompts. Speed is answer tokens per second.",
                                            model, num_questions)},
                       {"sections", std::move(sections)}};
  return ReportPage(report.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace spa
