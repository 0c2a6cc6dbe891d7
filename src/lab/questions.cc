#include "lab/questions.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"

namespace spa {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSpaces = " \t\r\n\f\v";

std::string Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1));
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
  CheckJsonDepth(bytes, where);
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
  ForEachJsonLine(bytes, where, [&](const Json& line, const std::string& place) {
    questions.push_back(LineQuestion(line, task, place));
  });
  return questions;
}

}  // namespace

// FNV-1a.
uint64_t HashBytes(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

void ForEachJsonLine(
    const std::string& bytes, const std::string& where,
    const std::function<void(const Json& line, const std::string& place)>& on_line) {
  size_t number = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string text = Trim(std::string_view(bytes).substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (text.empty()) continue;
    const std::string place = fmt::format("{}, line {}", where, number);
    CheckJsonDepth(text, place);
    const auto line = Json::parse(text, nullptr, false);
    if (line.is_discarded()) throw Error("{} is not JSON", place);
    on_line(line, place);
  }
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("cannot open {}", path.string());
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) throw Error("cannot read {}", path.string());
  return bytes;
}

TaskKind ParseTaskKind(const std::string& name) {
  if (name == "bbh") return TaskKind::kBbh;
  if (name == "gsm8k") return TaskKind::kGsm8k;
  if (name == "jsonl") return TaskKind::kJsonl;
  throw Error("there is no task '{}': choose from bbh, gsm8k, jsonl", name);
}

std::string TaskName(TaskKind kind) {
  return kind == TaskKind::kBbh ? "bbh" : kind == TaskKind::kGsm8k ? "gsm8k" : "jsonl";
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

std::vector<Question> BuiltInQuestions() {
  const auto question = [](const char* text, const char* expected) {
    return Question{.id = {}, .text = text, .worked = {}, .expected = expected};
  };
  return {
      question("not ( True and False ) or False is", "True"),
      question("( False or not True ) and True is", "False"),
      question("Complete the rest of the sequence, making sure that the parentheses are closed "
               "properly. Input: < { ( ) [",
               "] } >"),
      question("Question: Nadia lies. Boris says Nadia tells the truth. Elena says Boris lies. "
               "Does Elena tell the truth?",
               "Yes"),
      question("If you follow these instructions, do you return to the starting point? Always face "
               "forward. Take 3 steps left. Take 5 steps right. Take 2 steps left.\n"
               "Options:\n- Yes\n- No",
               "Yes"),
      question(
          "Alice, Bob, and Claire are playing a game. At the start of the game, they are each "
          "holding a ball: Alice has a red ball, Bob has a blue ball, and Claire has a green "
          "ball.\nAs the game progresses, pairs of players trade balls. First, Alice and Claire "
          "swap balls. Then, Bob and Alice swap balls. Finally, Claire and Bob swap balls. At "
          "the end of the game, Bob has the\n"
          "Options:\n(A) red ball\n(B) blue ball\n(C) green ball",
          "(A)"),
      question("I have two apples, a banana, a fridge, and three plums. How many fruits do I have?",
               "6"),
  };
}

}  // namespace spa
