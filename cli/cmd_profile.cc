// spa profile: how far the rows of each layer move between steps, and the budget fitted to that.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/atomic_file.h"
#include "base/counted.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "lab/compare.h"
#include "lab/profile.h"
#include "lab/report.h"
#include "policies/spa_profile.h"

namespace spa::cli {
namespace {

const std::vector<std::string> kFits = {"input", "value", "proxy", "attention", "output"};

struct ProfileFlags {
  ModelFlags model;
  DecodeFlags decode;
  QuestionFlags questions{.data = {}, .task = "bbh", .limit = 10};
  std::string scope = "gen", fit = "output", out, report;
  double tau = 0.95;
  bool json = false;
};

std::vector<std::vector<TokenId>> Prompts(const ProfileFlags& flags, const Engine& engine) {
  std::vector<Question> questions =
      flags.questions.Read({.kind = ParseTaskKind(flags.questions.task), .extract = {}});
  if (questions.empty()) questions = BuiltInQuestions();
  std::vector<std::vector<TokenId>> prompts;
  prompts.reserve(questions.size());
  for (const Question& question : questions) {
    prompts.push_back(AskIds(engine, {}, question.text, false));
  }
  return prompts;
}

void RunProfile(const ProfileFlags& flags) {
  // Opened first: a bad path should fail before the run, not after it.
  std::optional<AtomicFile> report;
  if (!flags.report.empty()) report.emplace(flags.report);
  flags.decode.Choices();
  ParseTaskKind(flags.questions.task);
  const auto engine = flags.model.Load();
  std::filesystem::path out = flags.out;
  if (out.empty()) {
    out = ProfilePath(engine->file());
    if (out.empty())
      throw Error("there is no home folder to store the profile in: give --out FILE");
    std::error_code ignored;  // opening the file will report the error
    std::filesystem::create_directories(out.parent_path(), ignored);
  }
  AtomicFile file(out);
  ProfileOptions options;
  options.tau = flags.tau;
  options.scope_all = flags.scope == "all";
  options.fitted = static_cast<Feature>(std::ranges::find(kFits, flags.fit) - kFits.begin());
  options.decode = flags.decode.Resolve(*engine);
  const auto prompts = Prompts(flags, *engine);
  ProgressBar bar;
  const auto show = [&](std::string_view what, double share) { bar.Show(what, share); };
  engine->set_progress(show);
  const DriftProfile profile = MeasureDrift(*engine, prompts, options, show);
  const std::string json = ProfileJson(profile, engine->file());
  file.Write(json.data(), json.size());
  file.Commit();
  if (report) {
    const auto times = MeasureComponents(*engine, prompts, options.decode, show);
    const std::string page = ProfileReport(profile, times, engine->config().name);
    report->Write(page.data(), page.size());
    report->Commit();
  }
  bar.Clear();
  if (flags.json) {
    nlohmann::ordered_json printed = nlohmann::ordered_json::parse(json);
    printed["file"] = out.string();
    PrintLine(printed.dump());
    return;
  }
  const std::vector<double> bell = BudgetRatios(profile.budget, engine->config().num_layers);
  std::vector<std::vector<std::string>> table = {{"layer"}};
  for (const std::string_view name : kFeatureNames) table[0].emplace_back(name);
  table[0].emplace_back("fitted budget");
  for (size_t layer = 0; layer < bell.size(); ++layer) {
    std::vector<std::string>& row = table.emplace_back();
    row.push_back(fmt::format("{}", layer + 1));
    for (const FeatureDrift& feature : profile.features) {
      row.push_back(fmt::format("{:.1f}%", 100.0 * feature.drifted[layer]));
    }
    row.push_back(fmt::format("{:.1f}%", 100.0 * bell[layer]));
  }
  PrintLine(fmt::format(
      "{}rows with similarity below {} to the step before, {}, {}\n"
      "l_p = {:.2f}, rho_p = {:.3f}, rho_1 = {:.3f}, rho_L = {:.3f}, mean {:.3f} "
      "(fit error {:.3f}; the published budget has mean {:.3f}), stored in {}{}{}",
      FormatTable(table), profile.tau, Counted(profile.num_prompts, "prompt"),
      Counted(profile.num_steps, "step"), profile.budget.peak_layer, profile.budget.peak_ratio,
      profile.budget.first_ratio, profile.budget.last_ratio, MeanRatio(bell), profile.fit_error,
      MeanRatio(BudgetRatios(PublishedBudget(engine->config()), bell.size())), out.string(),
      flags.out.empty() ? "\n--cache spa uses it from now on; --cache-opt profile=off ignores it"
                        : "",
      flags.report.empty() ? "" : "\nreport in " + flags.report));
}

}  // namespace

void AddProfile(CommandLine& line) {
  auto flags = std::make_shared<ProfileFlags>();
  Command command = line.Add("profile", "Measure drift per layer and fit SPA-Cache's budget to it");
  flags->questions.Add(command);
  command.Add("--tau", flags->tau, "A row less similar than this has drifted (default 0.95)")
      .Between(0.0, 1.0)
      .Type("S");
  command.Add("--scope", flags->scope, "Rows that count: gen (default), all")
      .OneOf({"gen", "all"})
      .Type("SCOPE");
  command
      .Add("--fit", flags->fit,
           "Curve the budget follows: input, value, proxy, attention, output (default)")
      .OneOf(kFits)
      .Type("FEATURE");
  command
      .Add("--out", flags->out,
           "Store the profile here (default: the user's cache folder, where --cache spa "
           "finds it)")
      .Type("FILE");
  command.Add("--report", flags->report, "Write an HTML page with the figures").Type("FILE");
  command.Add("--json", flags->json, "Print one JSON object");
  flags->model.Add(command);
  flags->decode.Add(command);
  command.Footer(
      "Examples:\n"
      "  spa profile --report drift.html\n"
      "  spa profile -m LLaDA-8B-Instruct-Q4_0.gguf --task gsm8k --data gsm8k/test.jsonl");
  command.Action([flags] { RunProfile(*flags); });
}

}  // namespace spa::cli
