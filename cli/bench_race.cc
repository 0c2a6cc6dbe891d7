#include "cli/bench_race.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/flags.h"
#include "engine/memory.h"
#include "lab/race.h"
#include "writer/write_model.h"

namespace spa::cli {
namespace {

std::vector<size_t> Numbers(const std::string& list, const char* flag) {
  std::vector<size_t> numbers;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    size_t number = 0;
    const auto [rest, error] = std::from_chars(list.data() + begin, list.data() + end, number);
    if (error != std::errc() || rest != list.data() + end || number == 0) {
      throw Error("{} takes comma-separated numbers of at least 1, not '{}'", flag, list);
    }
    numbers.push_back(number);
    begin = end + 1;
  }
  return numbers;
}

std::string Quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// The output of a command.
std::string OutputOf(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw Error("cannot run {}", command);
  std::string output;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, n);
  if (const int status = ::pclose(pipe); status != 0) {
    throw Error("{} ended with status {}", command, status);
  }
  return output;
}

// Seconds of one test, from an array of objects.
double TestSeconds(const nlohmann::json& tests, size_t prompt, size_t generated, size_t depth) {
  for (const auto& test : tests) {
    if (test.value("n_prompt", size_t{0}) == prompt &&
        test.value("n_gen", size_t{0}) == generated && test.value("n_depth", size_t{0}) == depth) {
      return 1e-9 * test.at("avg_ns").get<double>();
    }
  }
  throw Error("llama-bench did not report the test of {} + {} tokens", prompt, generated);
}

size_t PeakOfChildren() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

std::string Seconds(double seconds) { return fmt::format("{:.1f}", seconds); }

struct Course {
  size_t prompt;
  std::vector<RaceResult> ours;
  const LlamaTimes* llama;  // null: not run
};

nlohmann::ordered_json ToJson(const std::vector<Course>& courses, const RaceFlags& flags) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Course& course : courses) {
    for (const RaceResult& r : course.ours) {
      json.push_back({{"prompt", course.prompt},
                      {"answer", flags.answer},
                      {"tokens_per_step", r.per_step},
                      {"steps", r.steps},
                      {"first_step_seconds", r.first_step_seconds},
                      {"first_block_seconds", r.first_block_seconds},
                      {"last_block_seconds", r.last_block_seconds},
                      {"answer_seconds", r.answer_seconds},
                      {"cache_bytes", r.cache_bytes},
                      {"whole_run", flags.full}});
    }
    if (course.llama == nullptr) continue;
    json.push_back({{"prompt", course.prompt},
                    {"answer", flags.answer},
                    {"program", "llama.cpp"},
                    {"prompt_seconds", course.llama->prompt_seconds},
                    {"token_seconds", course.llama->token_seconds},
                    {"peak_bytes", course.llama->peak_bytes}});
  }
  return json;
}

}  // namespace

Flag RaceFlags::Add(Command& command) {
  const Flag race = command.Add(
      "--race", on, "Time whole answers and compare with an autoregressive model in llama.cpp");
  command.Add("--full", full, "Race: run every step instead of three blocks; --window does so too")
      .With(race);
  command.Add("--race-prompts", prompts, "Race: prompt lengths (default 256,1024)")
      .Type("N,N")
      .With(race);
  command.Add("--tokens-per-step", rates, "Race: tokens settled per step (default 1,2,4,6)")
      .Type("N,N")
      .With(race);
  const Flag bench = command.Add("--llama-bench", llama_bench, "Race: llama.cpp's bench program")
                         .Type("PATH")
                         .With(race);
  command.Add("--llama-model", llama_model, "Race: the model it runs (default: of the same shape)")
      .Type("FILE")
      .With(bench);
  return race;
}

std::vector<LlamaTimes> RunLlamaBench(const RaceFlags& flags) {
  std::vector<LlamaTimes> times;
  if (flags.llama_bench.empty()) return times;
  // The first tokens after the prompt take as long as later ones.
  const size_t tokens = flags.full ? flags.answer : 16;
  for (const size_t prompt : Numbers(flags.prompts, "--race-prompts")) {
    const auto run = [&](const std::string& test) {
      const std::string command =
          fmt::format("{} -m {} -t {} -r 1 -o json {} 2>/dev/null", Quoted(flags.llama_bench),
                      Quoted(flags.llama_model), flags.threads, test);
      try {
        return nlohmann::json::parse(OutputOf(command));
      } catch (const nlohmann::json::exception&) {
        throw Error("{} printed no JSON: is it llama.cpp's llama-bench?", flags.llama_bench);
      }
    };
    LlamaTimes t{.prompt = prompt};
    t.prompt_seconds = TestSeconds(run(fmt::format("-p {} -n 0", prompt)), prompt, 0, 0);
    t.token_seconds =
        TestSeconds(run(fmt::format("-p 0 -n {} -d {}", tokens, prompt)), 0, tokens, prompt) /
        static_cast<double>(tokens);
    t.peak_bytes = PeakOfChildren();
    times.push_back(t);
  }
  return times;
}

void PrintRace(Engine& engine, const RaceFlags& flags, const std::vector<LlamaTimes>& llama,
               bool json) {
  const std::vector<size_t> rates = Numbers(flags.rates, "--tokens-per-step");
  const SharedCache cache = engine.PrepareCache(ParseCacheList(flags.cache).front());
  std::vector<Course> courses;
  for (const size_t prompt : Numbers(flags.prompts, "--race-prompts")) {
    const RaceCourse course{.prompt = prompt,
                            .answer = flags.answer,
                            .block = flags.block,
                            .window = flags.window,
                            .whole = flags.full};
    courses.push_back({prompt, MeasureRace(engine, cache, course, rates), nullptr});
  }
  for (Course& course : courses) {
    for (const LlamaTimes& times : llama) {
      if (times.prompt == course.prompt) course.llama = &times;
    }
  }
  if (json) return PrintLine(ToJson(courses, flags).dump());
  std::vector<std::vector<std::string>> table = {{"prompt", "program", "tokens/step", "prompt s",
                                                  "first block s", "last block s", "answer s",
                                                  "tokens/s", "x llama.cpp", "state"}};
  const auto answer = static_cast<double>(flags.answer);
  for (const Course& course : courses) {
    double theirs = 0.0;
    if (course.llama != nullptr) {
      theirs = course.llama->prompt_seconds + answer * course.llama->token_seconds;
      table.push_back({fmt::format("{}", course.prompt), "llama.cpp", "1",
                       Seconds(course.llama->prompt_seconds), "", "", Seconds(theirs),
                       fmt::format("{:.2f}", answer / theirs), "1", ""});
    }
    for (const RaceResult& r : course.ours) {
      table.push_back({fmt::format("{}", course.prompt), "spa", fmt::format("{}", r.per_step),
                       Seconds(r.first_step_seconds), Seconds(r.first_block_seconds),
                       r.last_block_seconds > 0.0 ? Seconds(r.last_block_seconds) : "",
                       Seconds(r.answer_seconds), fmt::format("{:.2f}", answer / r.answer_seconds),
                       theirs > 0.0 ? fmt::format("{:.2f}", theirs / r.answer_seconds) : "",
                       FormatBytes(r.cache_bytes)});
    }
  }
  std::string text = fmt::format("{} layers, answer of {} tokens in blocks of {}, {} threads\n\n",
                                 engine.config().num_layers, flags.answer, flags.block,
                                 engine.pool().num_threads());
  text += FormatTable(table);
  if (!flags.full) {
    text +=
        "\nThe first step, the first two blocks and the last were run: answer = first block + "
        "(blocks - 1) x mean of the second and the last.\nEvery step runs with --full.";
    if (!llama.empty()) {
      text += " llama.cpp: prompt + tokens x mean time of 16 tokens after the prompt.";
    }
  }
  text += fmt::format("\nPeak memory: spa {}", FormatBytes(PeakMemoryBytes()));
  if (!llama.empty()) {
    text += fmt::format(", llama.cpp {}", FormatBytes(llama.back().peak_bytes));
  }
  PrintLine(text);
}

TemporaryModel::TemporaryModel(const ModelConfig& shape, const std::string& type,
                               bool autoregressive, ThreadPool& pool) {
  const auto dtype = ParseDType(type);
  if (!dtype) throw Error("there is no tensor type '{}'", type);
  path_ =
      std::filesystem::temp_directory_path() /
      fmt::format("spa-bench-{}.gguf", std::chrono::steady_clock::now().time_since_epoch().count());
  ProgressBar bar;
  WriteSynthetic(
      shape, *dtype, 0, path_, [&](std::string_view what, double share) { bar.Show(what, share); },
      pool, autoregressive);
}

TemporaryModel::~TemporaryModel() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace spa::cli
