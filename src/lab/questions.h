// Questions with known answers, read from benchmark files, and the judgement of answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/last_match.h"

namespace spa {

// The text before an answer, in BIG-Bench-Hard's format and in our own prompts.
inline constexpr std::string_view kAnswerMark = "Answer:";

enum class TaskKind {
  kBbh,    // {"examples": [{"input", "target"}]}; the answer follows the last "Answer:"
  kGsm8k,  // JSON lines; the answer is the last number, the expected one follows "####"
  kJsonl,  // JSON lines; the answer is what the pattern finds, or the whole text
};

struct TaskOptions {
  TaskKind kind = TaskKind::kBbh;
  // ECMAScript regular expression; its last match counts, or that match's first group if there is
  // one. Empty: the task's own rule.
  std::string extract;
  std::string question_field = "question", answer_field = "answer";  // of JSON lines
};

// Throws Error naming the tasks that exist.
TaskKind ParseTaskKind(const std::string& name);
std::string TaskName(TaskKind kind);

struct Question {
  std::string id;  // name of the set and number of the question: "navigate/17"
  std::string text;
  std::string worked;    // the answer as an example shows it
  std::string expected;  // what the model's answer is compared with
};

struct QuestionSet {
  std::string name;   // the file's name without folder and extension
  uint64_t hash = 0;  // of the file's bytes
  std::vector<Question> questions;
};

// Throws Error saying where the file does not have the task's format.
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

// A few questions of the kind the embedded model was trained on.
std::vector<Question> BuiltInQuestions();

// To tell files apart; not cryptographic.
uint64_t HashBytes(std::string_view bytes);
// Calls `on_line` for every line that is not blank; `place` names it in messages. Throws Error if
// one is not JSON.
void ForEachJsonLine(const std::string& bytes, const std::string& where,
                     const std::function<void(const nlohmann::ordered_json& line,
                                              const std::string& place)>& on_line);

// Throws Error if the file cannot be read.
std::string ReadFile(const std::filesystem::path& path);

}  // namespace spa
