#include "engine/eval.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "policies/spa.h"

namespace spa {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr std::string_view kSpaces = " \t\r\n\f\v";
constexpr std::string_view kAnswerMark = "Answer:";

std::string Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1));
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("cannot open {}", path.string());
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw Error("cannot read {}", path.string());
  return bytes;
}

// FNV-1a: tells files apart, nothing more.
uint64_t HashBytes(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

// The text of a field, which may also be a number or a truth value.
std::string FieldText(const Json& object, const std::string& field, const std::string& where) {
  if (!object.is_object() || !object.contains(field)) {
    throw Error("{} has no field '{}'", where, field);
  }
  const Json& value = object[field];
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  throw Error("{}: the field '{}' is not text", where, field);
}

std::optional<std::string> LastNumber(const std::string& text) {
  static const Finder find = LastMatch("-?[0-9][0-9,]*(?:\\.[0-9]+)?|-?\\.[0-9]+");
  std::optional<std::string> last = find(text);
  if (last) std::erase(*last, ',');
  return last;
}

Question BbhQuestion(const Json& example, const std::string& where) {
  Question question;
  question.text = FieldText(example, "input", where);
  question.expected = Trim(FieldText(example, "target", where));
  question.worked = fmt::format("{} {}", kAnswerMark, question.expected);
  return question;
}

Question LineQuestion(const Json& line, const TaskOptions& task, const std::string& where) {
  Question question;
  question.text = FieldText(line, task.question_field, where);
  question.worked = FieldText(line, task.answer_field, where);
  question.expected = Trim(question.worked);
  if (task.kind == TaskKind::kGsm8k) {
    const size_t mark = question.worked.rfind("####");
    if (mark == std::string::npos) throw Error("{}: the answer has no '####'", where);
    question.expected = Trim(std::string_view(question.worked).substr(mark + 4));
    std::erase(question.expected, ',');
  }
  return question;
}

std::vector<Question> ParseBbh(const std::string& bytes, const std::string& where) {
  const auto json = Json::parse(bytes, nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("examples") ||
      !json["examples"].is_array()) {
    throw Error("{} is not a BBH file: expected {{\"examples\": [{{\"input\", \"target\"}}, ...]}}",
                where);
  }
  std::vector<Question> questions;
  for (const auto& example : json["examples"]) {
    questions.push_back(
        BbhQuestion(example, fmt::format("{}, example {}", where, questions.size() + 1)));
  }
  return questions;
}

std::vector<Question> ParseLines(const std::string& bytes, const TaskOptions& task,
                                 const std::string& where) {
  std::vector<Question> questions;
  size_t number = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string text = Trim(std::string_view(bytes).substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (text.empty()) continue;
    const auto line = Json::parse(text, nullptr, false);
    const std::string place = fmt::format("{}, line {}", where, number);
    if (line.is_discarded()) throw Error("{} is not JSON", place);
    questions.push_back(LineQuestion(line, task, place));
  }
  return questions;
}

}  // namespace

TaskKind ParseTaskKind(const std::string& name) {
  if (name == "bbh") return TaskKind::kBbh;
  if (name == "gsm8k") return TaskKind::kGsm8k;
  if (name == "jsonl") return TaskKind::kJsonl;
  throw Error("there is no task '{}': choose from bbh, gsm8k, jsonl", name);
}

QuestionSet ReadQuestions(const std::filesystem::path& path, const TaskOptions& task) {
  const std::string bytes = ReadFile(path);
  QuestionSet set;
  set.name = path.stem().string();
  set.hash = HashBytes(bytes);
  set.questions = task.kind == TaskKind::kBbh ? ParseBbh(bytes, path.string())
                                              : ParseLines(bytes, task, path.string());
  if (set.questions.empty()) throw Error("{} holds no questions", path.string());
  for (size_t i = 0; i < set.questions.size(); ++i) {
    set.questions[i].id = fmt::format("{}/{}", set.name, i);
  }
  return set;
}

std::string CollapseSpaces(std::string_view text) {
  std::string collapsed;
  for (const char c : Trim(text)) {
    const bool space = kSpaces.find(c) != std::string_view::npos;
    if (!space) {
      collapsed += c;
    } else if (collapsed.back() != ' ') {
      collapsed += ' ';
    }
  }
  return collapsed;
}

Grader::Grader(const TaskOptions& task) : kind_(task.kind) {
  if (!task.extract.empty()) find_ = LastMatch(task.extract);
}

std::optional<std::string> Grader::Extract(const std::string& text) const {
  if (find_) {
    std::optional<std::string> found = find_(text);
    if (found) found = Trim(*found);
    return found;
  }
  if (kind_ == TaskKind::kGsm8k) return LastNumber(text);
  if (kind_ == TaskKind::kJsonl) return Trim(text);
  const size_t mark = text.rfind(kAnswerMark);
  if (mark == std::string::npos) return std::nullopt;
  return Trim(std::string_view(text).substr(mark + kAnswerMark.size()));
}

bool Grader::Correct(const std::string& answer, const std::string& expected) const {
  const std::string a = CollapseSpaces(answer), e = CollapseSpaces(expected);
  if (a == e) return true;
  const bool choice = e.size() == 3 && e[0] == '(' && e[2] == ')' && std::isalpha(e[1]);
  if (choice) return a.starts_with(e);
  if (kind_ != TaskKind::kGsm8k) return false;
  try {
    size_t a_end = 0, e_end = 0;
    const double a_number = std::stod(a, &a_end), e_number = std::stod(e, &e_end);
    return a_end == a.size() && e_end == e.size() && a_number == e_number;
  } catch (const std::exception&) {
    return false;
  }
}

std::string SampleToJson(const Sample& s) {
  return Json{{"id", s.id},
              {"prompt_tokens", s.prompt_tokens},
              {"generated_tokens", s.generated_tokens},
              {"text", s.text},
              {"answer", s.answer},
              {"expected", s.expected},
              {"correct", s.correct},
              {"steps", s.steps},
              {"seconds", s.seconds},
              {"ttft_seconds", s.ttft_seconds},
              {"engine_seconds", s.engine_seconds},
              {"rows_computed", s.rows_computed},
              {"rows_total", s.rows_total},
              {"cache_bytes", s.cache_bytes},
              {"ids", s.ids}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Sample SampleFromJson(const std::string& line) {
  try {
    const Json json = Json::parse(line);
    Sample s;
    json.at("id").get_to(s.id);
    json.at("prompt_tokens").get_to(s.prompt_tokens);
    json.at("generated_tokens").get_to(s.generated_tokens);
    json.at("text").get_to(s.text);
    json.at("answer").get_to(s.answer);
    json.at("expected").get_to(s.expected);
    json.at("correct").get_to(s.correct);
    json.at("steps").get_to(s.steps);
    json.at("seconds").get_to(s.seconds);
    json.at("ttft_seconds").get_to(s.ttft_seconds);
    json.at("engine_seconds").get_to(s.engine_seconds);
    json.at("rows_computed").get_to(s.rows_computed);
    json.at("rows_total").get_to(s.rows_total);
    json.at("cache_bytes").get_to(s.cache_bytes);
    json.at("ids").get_to(s.ids);
    return s;
  } catch (const Json::exception&) {
    throw Error("not a sample");
  }
}

namespace {

// Where two settings differ, for people: "decode.steps is 64 there and 128 here".
std::string FirstDifference(const Json& there, const Json& here, const std::string& key = "") {
  if (there.is_object() && here.is_object()) {
    const std::string prefix = key.empty() ? "" : key + ".";
    for (const auto& [name, value] : here.items()) {
      const Json other = there.contains(name) ? there[name] : Json();
      if (other != value) return FirstDifference(other, value, prefix + name);
    }
  }
  return fmt::format("{} is {} there and {} here", key.empty() ? "it" : key, there.dump(),
                     here.dump());
}

struct Lines {
  std::vector<std::string> whole;  // without their line ends
  size_t whole_bytes = 0;
};

Lines WholeLines(const std::string& bytes) {
  Lines lines;
  for (size_t end; (end = bytes.find('\n', lines.whole_bytes)) != std::string::npos;
       lines.whole_bytes = end + 1) {
    lines.whole.push_back(bytes.substr(lines.whole_bytes, end - lines.whole_bytes));
  }
  return lines;
}

}  // namespace

SampleFile::SampleFile(std::filesystem::path path, const std::string& settings)
    : path_(std::move(path)) {
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) throw Error("cannot open {}: {}", path_.string(), std::strerror(errno));
  try {
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      throw Error("{} is being written by another run", path_.string());
    }
    struct stat status;
    if (fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
      throw Error("{} is not a regular file: samples are read back from it", path_.string());
    }
    const std::string bytes = ReadFile(path_);
    Lines lines = WholeLines(bytes);
    const Json here = {{"settings", Json::parse(settings)}};
    // A first line that was cut off is written again; anything else is somebody's.
    if (lines.whole.empty() && !here.dump().starts_with(bytes)) {
      throw Error("{} does not hold samples of an evaluation: give another file", path_.string());
    }
    for (size_t i = 0; i < lines.whole.size(); ++i) {
      if (i == 0) {
        const Json there = Json::parse(lines.whole[0], nullptr, false);
        if (there.is_discarded() || !there.is_object() || !there.contains("settings")) {
          throw Error("{} does not hold samples of an evaluation: give another file",
                      path_.string());
        }
        if (there != here) {
          throw Error("{} was made with other settings ({}): give another file, or the same settings",
                      path_.string(), FirstDifference(there["settings"], here["settings"]));
        }
        continue;
      }
      try {
        finished_.push_back(SampleFromJson(lines.whole[i]));
      } catch (const Error&) {
        if (i + 1 < lines.whole.size()) {
          throw Error("{} is damaged at line {}: repair it or give another file", path_.string(),
                      i + 1);
        }
        lines.whole_bytes -= lines.whole[i].size() + 1;
      }
    }
    if (ftruncate(fd_, static_cast<off_t>(lines.whole_bytes)) != 0) {
      throw Error("cannot write to {}: {}", path_.string(), std::strerror(errno));
    }
    if (lines.whole.empty()) WriteLine(here.dump());
  } catch (...) {
    close(fd_);
    throw;
  }
}

SampleFile::~SampleFile() { close(fd_); }

void SampleFile::Append(const Sample& sample) { WriteLine(SampleToJson(sample)); }

void SampleFile::WriteLine(const std::string& text) {
  const std::string line = text + "\n";
  for (size_t written = 0; written < line.size();) {
    const ssize_t count = write(fd_, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error("cannot write to {}: {}", path_.string(), std::strerror(errno));
    written += static_cast<size_t>(count);
  }
}

void RunPrompts(Engine& engine, std::span<const std::vector<TokenId>> prompts,
                const DecodeOptions& options, const PolicyFactory& policy, size_t batch,
                const OnSample& on_sample, const std::function<void()>& on_step,
                const WarmFrom& warm_from) {
  struct Running {
    size_t index;
    std::unique_ptr<Generation> generation;
    Clock::time_point start;
    Sample sample;
  };
  const auto seconds = [](Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  std::vector<Running> running;
  size_t next = 0;
  while (next < prompts.size() || !running.empty()) {
    while (running.size() < batch && next < prompts.size()) {
      const auto start = Clock::now();
      Generation* warm = warm_from ? warm_from(next) : nullptr;
      running.push_back({next, engine.Start(prompts[next], options, policy, warm), start, {}});
      ++next;
    }
    std::vector<Generation*> together;
    for (const Running& one : running) together.push_back(one.generation.get());
    const auto start = Clock::now();
    StepTogether(engine.transformer(), together);
    const auto end = Clock::now();
    for (Running& one : running) {
      one.sample.engine_seconds += seconds(end - start) / static_cast<double>(running.size());
      if (one.generation->decoder().steps() == 1) one.sample.ttft_seconds = seconds(end - one.start);
      if (!one.generation->done()) continue;
      const Decoder& decoder = one.generation->decoder();
      Sample& sample = one.sample;
      sample.seconds = seconds(end - one.start);
      sample.prompt_tokens = decoder.prompt_length();
      sample.generated_tokens = decoder.SettledPrefix().length;
      sample.steps = decoder.steps();
      sample.rows_computed = one.generation->rows_computed();
      sample.rows_total = one.generation->rows_total();
      sample.cache_bytes = one.generation->cache_bytes();
      sample.ids.assign(decoder.ids().begin() + static_cast<ptrdiff_t>(decoder.prompt_length()),
                        decoder.ids().end());
      if (engine.has_tokenizer()) sample.text = AnswerText(engine, decoder);
      on_sample(one.index, sample);
    }
    std::erase_if(running, [](const Running& one) { return one.generation->done(); });
    if (on_step) on_step();
  }
}

double StandardError(double ratio, size_t count) {
  if (count < 2) return 0.0;
  return std::sqrt(ratio * (1.0 - ratio) / static_cast<double>(count - 1));
}

Score ScoreSamples(std::string name, std::span<const Sample> samples) {
  Score score;
  score.name = std::move(name);
  score.count = samples.size();
  if (samples.empty()) return score;
  double tokens = 0.0, rows = 0.0, all_rows = 0.0;
  for (const Sample& sample : samples) {
    score.correct += sample.correct ? 1 : 0;
    tokens += static_cast<double>(sample.generated_tokens);
    rows += static_cast<double>(sample.rows_computed);
    all_rows += static_cast<double>(sample.rows_total);
    score.seconds += sample.engine_seconds;
    score.ttft_seconds += sample.ttft_seconds;
    score.steps += static_cast<double>(sample.steps);
    score.cache_bytes = std::max(score.cache_bytes, sample.cache_bytes);
  }
  const auto count = static_cast<double>(score.count);
  score.accuracy = static_cast<double>(score.correct) / count;
  score.standard_error = StandardError(score.accuracy, score.count);
  score.ttft_seconds /= count;
  score.steps /= count;
  score.tokens_per_second = score.seconds > 0.0 ? tokens / score.seconds : 0.0;
  score.rows_fraction = all_rows > 0.0 ? rows / all_rows : 0.0;
  return score;
}

Score TotalScore(std::span<const Score> scores, std::span<const Sample> samples) {
  Score total = ScoreSamples("total", samples);
  // Pooled within the sets, as the evaluation harness does for groups.
  double sum = 0.0;
  for (const Score& score : scores) {
    const auto n = static_cast<double>(score.count);
    sum += (n - 1.0) * n * score.standard_error * score.standard_error;
  }
  const auto n = static_cast<double>(total.count), k = static_cast<double>(scores.size());
  if (n > k) total.standard_error = std::sqrt(sum / (n - k) / n);
  return total;
}

std::vector<TokenId> AskIds(const Engine& engine, std::span<const Question> examples,
                            const std::string& question, bool raw) {
  Prompt prompt;
  for (const Question& example : examples) {
    if (raw) {
      prompt.text += example.text + "\n" + example.worked + "\n\n";
    } else {
      prompt.messages.push_back({"user", example.text});
      prompt.messages.push_back({"assistant", example.worked});
    }
  }
  if (raw) {
    prompt.text += question + "\n";
  } else {
    prompt.messages.push_back({"user", question});
  }
  return engine.Encode(prompt);
}

namespace {

Json DecodeSettings(const DecodeOptions& o) {
  const auto optional = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  return {{"gen_length", o.gen_length},
          {"block_length", o.block_length},
          {"steps", o.steps},
          {"schedule", static_cast<int>(o.schedule)},
          {"order", static_cast<int>(o.order)},
          {"draw", static_cast<int>(o.draw)},
          {"temperature", o.temperature},
          {"top_p", o.top_p},
          {"top_k", o.top_k},
          {"order_temperature", o.order_temperature},
          {"eps", o.eps},
          {"cfg_scale", o.cfg_scale},
          {"threshold", optional(o.threshold)},
          {"factor", optional(o.factor)},
          {"eos_rule", static_cast<int>(o.eos_rule)},
          {"early_stop", o.early_stop},
          {"seed", o.seed}};
}

// Everything that can change an answer, and the batch size, which changes the times. The limit is
// not among it: a run may be made longer.
Json Settings(const Engine& engine, const EvalOptions& o, std::span<const QuestionSet> sets,
              const CachePolicy& policy) {
  Json data = Json::array();
  for (const QuestionSet& set : sets) {
    data.push_back({{"name", set.name}, {"hash", fmt::format("{:016x}", set.hash)}});
  }
  Json settings = {{"model", fmt::format("{:016x}", engine.file().Fingerprint())},
                   {"kv", o.kv},
                   {"task", static_cast<int>(o.task.kind)},
                   {"extract", o.task.extract},
                   {"question_field", o.task.question_field},
                   {"answer_field", o.task.answer_field},
                   {"data", data},
                   {"few_shot", o.few_shot},
                   {"raw", o.raw},
                   {"batch", o.batch},
                   {"cache", o.cache.ToString()},
                   {"decode", DecodeSettings(o.decode)}};
  if (o.warm) settings["warm"] = true;
  // It may come from a profile that is measured anew any time.
  if (const auto* spa_policy = dynamic_cast<const SpaPolicy*>(&policy)) {
    settings["budget"] = spa_policy->model().options.ratios;
  }
  return settings;
}

// A question on its way: what to ask, what to expect, and the record once it is there.
struct Asked {
  const Question* question;
  size_t set;
  std::vector<TokenId> ids;
  Sample sample;
  bool finished = false;
};

// Everything that can go wrong with a prompt does so here, before the first minute is spent.
std::vector<Asked> PrepareSet(const Engine& engine, const EvalOptions& options,
                              const QuestionSet& set, size_t set_index) {
  if (set.questions.size() <= options.few_shot) {
    throw Error("{} holds {} questions: too few for {} examples and a question", set.name,
                set.questions.size(), options.few_shot);
  }
  const std::span questions(set.questions);
  const auto examples = questions.first(options.few_shot);
  auto scored = questions.subspan(options.few_shot);
  if (options.limit > 0) scored = scored.first(std::min(options.limit, scored.size()));
  std::vector<Asked> asked;
  for (const Question& question : scored) {
    asked.push_back(
        {&question, set_index, AskIds(engine, examples, question.text, options.raw), {}});
    if (asked.back().ids.size() + options.decode.gen_length > engine.config().context_length) {
      throw Error(
          "the question {} has {} tokens and its answer {}, but the model's context is {} tokens",
          question.id, asked.back().ids.size(), options.decode.gen_length,
          engine.config().context_length);
    }
  }
  return asked;
}

}  // namespace

EvalResult Evaluate(Engine& engine, const EvalOptions& options, const EvalProgress& progress) {
  const Grader grader(options.task);
  std::vector<QuestionSet> sets;
  for (const auto& path : options.data) {
    sets.push_back(ReadQuestions(path, options.task));
    for (size_t i = 0; i + 1 < sets.size(); ++i) {
      if (sets[i].name == sets.back().name) {
        throw Error("two data files are named {}: their samples could not be told apart",
                    sets[i].name);
      }
    }
  }
  std::vector<std::vector<Asked>> asked;
  for (size_t i = 0; i < sets.size(); ++i) {
    asked.push_back(PrepareSet(engine, options, sets[i], i));
  }
  const PolicyFactory policy = engine.PrepareCache(options.cache, {.warm = options.warm});
  const Json settings = Settings(engine, options, sets, *policy());
  std::optional<SampleFile> records;
  if (!options.samples.empty()) records.emplace(options.samples, settings.dump());

  EvalResult result;
  result.settings = settings.dump();
  size_t done = 0, total = 0, correct = 0;
  std::unordered_map<std::string, Asked*> by_id;
  for (auto& set : asked) {
    for (Asked& one : set) by_id[one.question->id] = &one;
    total += set.size();
  }
  if (records) {
    for (const Sample& sample : records->finished()) {
      const auto it = by_id.find(sample.id);
      if (it == by_id.end() || it->second->finished) continue;  // beyond this run's limit
      it->second->sample = sample;
      it->second->finished = true;
      ++result.resumed;
      ++done;
      correct += sample.correct ? 1 : 0;
    }
  }
  std::vector<Asked*> open;
  std::vector<std::vector<TokenId>> prompts;
  for (auto& set : asked) {
    for (Asked& one : set) {
      if (one.finished) continue;
      open.push_back(&one);
      prompts.push_back(one.ids);
    }
  }
  if (progress) progress(done, total, correct);
  if (!prompts.empty()) {
    // Always the first question of a file, so that a resumed run gives the same answers.
    std::vector<std::unique_ptr<Generation>> donors(sets.size());
    const WarmFrom warm_from = [&](size_t index) {
      auto& donor = donors[open[index]->set];
      if (!donor) {
        donor = engine.Start(asked[open[index]->set].front().ids, options.decode, policy);
        Generation* one = donor.get();
        StepTogether(engine.transformer(), {&one, 1});
      }
      return donor.get();
    };
    RunPrompts(engine, prompts, options.decode, policy, options.batch,
               [&](size_t index, Sample& sample) {
                 const Question& question = *open[index]->question;
                 sample.id = question.id;
                 sample.expected = question.expected;
                 const auto answer = grader.Extract(sample.text);
                 sample.answer = answer.value_or("");
                 sample.correct = answer && grader.Correct(*answer, question.expected);
                 if (records) records->Append(sample);
                 open[index]->sample = sample;
                 ++done;
                 correct += sample.correct ? 1 : 0;
                 if (progress) progress(done, total, correct);
               },
               {}, options.warm ? warm_from : WarmFrom());
  }
  std::vector<Sample> all;
  for (size_t i = 0; i < sets.size(); ++i) {
    std::vector<Sample> samples;
    for (Asked& one : asked[i]) samples.push_back(std::move(one.sample));
    result.scores.push_back(ScoreSamples(sets[i].name, samples));
    std::ranges::move(samples, std::back_inserter(all));
  }
  result.total = TotalScore(result.scores, all);
  return result;
}

}  // namespace spa
