// Accuracy on questions with known answers: reads them from files, runs them a few at a time, takes
// the answer out of each text and keeps a record per question. A run that was interrupted goes on
// from its records: nothing finished is lost or repeated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/last_match.h"

namespace spa {

enum class TaskKind {
  kBbh,    // {"examples": [{"input", "target"}]}; the answer follows the last "Answer:"
  kGsm8k,  // JSON lines; the answer is the last number, the expected one follows "####"
  kJsonl,  // JSON lines; the answer is what the pattern finds, or the whole text
};

struct TaskOptions {
  TaskKind kind = TaskKind::kBbh;
  // ECMAScript regular expression; its last match counts, of it the first group if there is one.
  // Empty: the task's own rule.
  std::string extract;
  std::string question_field = "question", answer_field = "answer";  // of JSON lines
};

// Throws Error naming the tasks that exist.
TaskKind ParseTaskKind(const std::string& name);

struct Question {
  std::string id;  // name of the set and number of the question: "navigate/17"
  std::string text;
  std::string worked;    // the answer as an example shows it
  std::string expected;  // what the model's answer is compared with
};

struct QuestionSet {
  std::string name;       // the file's name without folder and extension
  uint64_t hash = 0;      // of the file's bytes
  std::vector<Question> questions;
};

// Throws Error saying where the file is not of the task's form.
QuestionSet ReadQuestions(const std::filesystem::path& path, const TaskOptions& task);

// Finds and judges answers.
class Grader {
 public:
  // Throws Error if the pattern is not a regular expression.
  explicit Grader(const TaskOptions& task);

  // The answer in a model's text, trimmed; nothing if there is none.
  std::optional<std::string> Extract(const std::string& text) const;
  // Equal after trimming and collapsing white space. Of a choice such as "(A)" the letter counts,
  // whatever follows it; numbers are compared as numbers for gsm8k.
  bool Correct(const std::string& answer, const std::string& expected) const;

 private:
  TaskKind kind_;
  Finder find_;  // empty: the task's own rule
};

std::string CollapseSpaces(std::string_view text);

// One finished question.
struct Sample {
  std::string id;
  size_t prompt_tokens = 0;
  size_t generated_tokens = 0;  // of the answer, without its end token
  std::string text;             // all the model said
  std::string answer;           // what was found in it
  std::string expected;
  bool correct = false;
  size_t steps = 0;
  double seconds = 0.0;         // from its start to its end
  double ttft_seconds = 0.0;    // until its first step was done
  double engine_seconds = 0.0;  // its share of the steps it was in: adds up to the engine's time
  uint64_t rows_computed = 0, rows_total = 0;
  size_t cache_bytes = 0;
  std::vector<TokenId> ids;     // the whole canvas
};

std::string SampleToJson(const Sample& sample);
// Throws Error if the line is not a whole sample.
Sample SampleFromJson(const std::string& line);

// The records of a run: a line with its settings, then a line per sample, appended as they finish.
class SampleFile {
 public:
  // Opens or creates the file. `settings` is a JSON object. A last line that was cut off is removed.
  // Throws Error if the file was made with other settings, is damaged, or is being written by
  // another run.
  SampleFile(std::filesystem::path path, const std::string& settings);
  ~SampleFile();
  SampleFile(const SampleFile&) = delete;
  SampleFile& operator=(const SampleFile&) = delete;

  const std::vector<Sample>& finished() const { return finished_; }
  // On the disk's side of the process when it returns.
  void Append(const Sample& sample);

 private:
  void WriteLine(const std::string& line);

  std::filesystem::path path_;
  int fd_ = -1;
  std::vector<Sample> finished_;
};

// Runs prompts, up to `batch` together; when one ends, the next takes its place. The samples carry
// what was measured; id, answer and judgement are left to the caller.
using OnSample = std::function<void(size_t index, Sample& sample)>;
// The generation a prompt starts warm from, or null.
using WarmFrom = std::function<Generation*(size_t index)>;
void RunPrompts(Engine& engine, std::span<const std::vector<TokenId>> prompts,
                const DecodeOptions& options, const PolicyFactory& policy, size_t batch,
                const OnSample& on_sample, const std::function<void()>& on_step = {},
                const WarmFrom& warm_from = {});

// sqrt(p (1 - p) / (n - 1)); 0 for fewer than two.
double StandardError(double ratio, size_t count);

// What a set of samples amounts to.
struct Score {
  std::string name;
  size_t count = 0, correct = 0;
  double accuracy = 0.0, standard_error = 0.0;
  double tokens_per_second = 0.0;  // answer tokens per second of engine time
  double ttft_seconds = 0.0;       // mean
  double seconds = 0.0;            // engine time
  double steps = 0.0;              // mean
  double rows_fraction = 0.0;
  size_t cache_bytes = 0;          // of the largest sequence
};
Score ScoreSamples(std::string name, std::span<const Sample> samples);
// All sets together: the mean weighted by size, and its standard error from those of the sets.
Score TotalScore(std::span<const Score> scores, std::span<const Sample> samples);

struct EvalOptions {
  TaskOptions task;
  std::vector<std::filesystem::path> data;
  size_t limit = 0;     // questions per file; 0: all
  size_t few_shot = 0;  // the first questions of a file as solved examples, not scored
  size_t batch = 1;
  bool raw = false;     // plain text instead of the chat template
  bool warm = false;    // what all questions of a file begin with is computed once, for the first
  std::string kv;       // name of the engine's KV type, for the settings
  DecodeOptions decode;
  CacheSpec cache;
  std::filesystem::path samples;  // empty: no records
};

struct EvalResult {
  std::vector<Score> scores;  // one per file
  Score total;
  size_t resumed = 0;         // samples read from the records
  std::string settings;       // JSON
};

// `progress` sees the questions done, the questions in all and the correct ones.
using EvalProgress = std::function<void(size_t done, size_t total, size_t correct)>;
EvalResult Evaluate(Engine& engine, const EvalOptions& options, const EvalProgress& progress = {});

// The ids of a question as it is asked, after solved examples.
std::vector<TokenId> AskIds(const Engine& engine, std::span<const Question> examples,
                            const std::string& question, bool raw);

}  // namespace spa
