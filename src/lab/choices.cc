#include "lab/choices.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "file/quoted.h"
#include "lab/eval.h"

namespace spa {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostChoices = 64;

std::string TextOf(const Json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  throw Error("{} is not text", where);
}

const Json& Field(const Json& line, const std::string& name, const std::string& where) {
  if (!line.is_object() || !line.contains(name)) throw Error("{} has no field '{}'", where, name);
  return line[name];
}

std::vector<std::string> Texts(const Json& list, const std::string& where) {
  if (!list.is_array()) throw Error("{} are not a list", where);
  std::vector<std::string> texts;
  for (const Json& item : list) texts.push_back(TextOf(item, where));
  return texts;
}

// The place of `answer` in one of the lists, or nothing.
std::optional<size_t> PlaceOf(const std::string& answer, const std::vector<std::string>& list) {
  const auto found = std::ranges::find(list, answer);
  if (found == list.end()) return {};
  return static_cast<size_t>(found - list.begin());
}

size_t AnswerOf(const Json& value, const std::vector<std::string>& choices,
                const std::vector<std::string>& labels, const std::string& where) {
  const std::string answer = TextOf(value, where + ": the answer");
  std::optional<size_t> place = PlaceOf(answer, labels);
  if (!place && value.is_string()) place = PlaceOf(answer, choices);
  const bool digits = !answer.empty() && answer.find_first_not_of("0123456789") == answer.npos;
  if (!place && labels.empty() && digits && answer.size() < 4) place = std::stoul(answer);
  if (!place && labels.empty() && answer.size() == 1 && std::isupper(answer[0]) != 0) {
    place = static_cast<size_t>(answer[0] - 'A');
  }
  if (!place || *place >= choices.size()) {
    throw Error("{}: the answer {} is none of the {} choices", where, Quoted(answer),
                choices.size());
  }
  return *place;
}

ChoiceQuestion LineQuestion(const Json& line, const ChoiceFields& fields,
                            const std::string& where) {
  ChoiceQuestion question;
  question.text = TextOf(Field(line, fields.question, where), where + ": the question");
  const Json& choices = Field(line, fields.choices, where);
  std::vector<std::string> labels;
  if (choices.is_object()) {
    question.choices = Texts(Field(choices, "text", where + ": the choices"), where);
    labels = Texts(Field(choices, "label", where + ": the choices"), where);
  } else {
    question.choices = Texts(choices, where + ": the choices");
  }
  question.answer = AnswerOf(Field(line, fields.answer, where), question.choices, labels, where);
  return question;
}

// "(A)" of a line "(A) red ball", "Yes" of a line "- Yes".
std::vector<std::string> ListedOptions(const std::string& text) {
  std::vector<std::string> options;
  const size_t list = text.find("Options:");
  for (size_t begin = text.find('\n', list); list != text.npos && begin < text.size();) {
    const size_t end = std::min(text.find('\n', ++begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (line.starts_with("(")) options.push_back(line.substr(0, line.find(')') + 1));
    if (line.starts_with("- ")) options.push_back(line.substr(2));
    begin = end;
  }
  return options;
}

std::vector<ChoiceQuestion> BbhQuestions(const Json& examples, const std::string& where) {
  std::vector<ChoiceQuestion> questions;
  std::vector<std::string> targets, all;
  for (const Json& example : examples) {
    const std::string place = fmt::format("{}, example {}", where, questions.size() + 1);
    ChoiceQuestion question;
    question.text = TextOf(Field(example, "input", place), place);
    question.choices = ListedOptions(question.text);
    targets.push_back(CollapseSpaces(TextOf(Field(example, "target", place), place)));
    if (!PlaceOf(targets.back(), all)) all.push_back(targets.back());
    questions.push_back(std::move(question));
  }
  std::ranges::sort(all);
  for (size_t i = 0; i < questions.size(); ++i) {
    ChoiceQuestion& question = questions[i];
    if (question.choices.empty()) question.choices = all;
    if (question.choices.size() > kMostChoices) {
      throw Error("{} has {} different answers: it is not a multiple-choice task", where,
                  question.choices.size());
    }
    question.answer =
        AnswerOf(targets[i], question.choices, {}, fmt::format("{}, example {}", where, i + 1));
  }
  return questions;
}

std::vector<ChoiceQuestion> LineQuestions(const std::string& bytes, const ChoiceFields& fields,
                                          const std::string& where) {
  std::vector<ChoiceQuestion> questions;
  ForEachJsonLine(bytes, where, [&](const Json& line, const std::string& place) {
    questions.push_back(LineQuestion(line, fields, place));
  });
  return questions;
}

size_t Characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

// A question's record, and its scores.
struct Judged {
  bool correct = false, normalised = false;
  double noise = 0.0;
};

Judged Judge(const ChoiceQuestion& question, std::span<const Likelihood> scores) {
  size_t best = 0, best_normalised = 0;
  Judged judged;
  const auto per_character = [&](size_t i) {
    const auto characters =
        static_cast<double>(std::max<size_t>(1, Characters(question.choices[i])));
    return scores[i].log_probability / characters;
  };
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i].log_probability > scores[best].log_probability) best = i;
    if (per_character(i) > per_character(best_normalised)) best_normalised = i;
    judged.noise += scores[i].standard_error / static_cast<double>(scores.size());
  }
  judged.correct = best == question.answer;
  judged.normalised = best_normalised == question.answer;
  return judged;
}

std::string ScoresText(std::span<const Likelihood> scores) {
  Json json = {{"log_probability", Json::array()}, {"standard_error", Json::array()}};
  for (const Likelihood& score : scores) {
    json["log_probability"].push_back(score.log_probability);
    json["standard_error"].push_back(score.standard_error);
  }
  return json.dump();
}

std::vector<Likelihood> ScoresFrom(const std::string& text, size_t count) {
  const Json json = Json::parse(text, nullptr, false);
  std::vector<Likelihood> scores(count);
  for (const char* name : {"log_probability", "standard_error"}) {
    const bool whole =
        json.is_object() && json.contains(name) && json[name].is_array() &&
        json[name].size() == count &&
        std::ranges::all_of(json[name], [](const Json& score) { return score.is_number(); });
    if (!whole) {
      throw Error("the records hold a question without the scores of its {} choices", count);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    scores[i].log_probability = json["log_probability"][i].get<double>();
    scores[i].standard_error = json["standard_error"][i].get<double>();
  }
  return scores;
}

ChoiceScore ScoreOf(std::string name, std::span<const Judged> judged) {
  ChoiceScore score;
  score.name = std::move(name);
  score.count = judged.size();
  const auto count = static_cast<double>(std::max<size_t>(1, judged.size()));
  for (const Judged& one : judged) {
    score.accuracy += (one.correct ? 1.0 : 0.0) / count;
    score.normalised += (one.normalised ? 1.0 : 0.0) / count;
    score.noise += one.noise / count;
  }
  score.standard_error = StandardError(score.accuracy, score.count);
  score.normalised_error = StandardError(score.normalised, score.count);
  return score;
}

}  // namespace

ChoiceSet ReadChoices(const std::filesystem::path& path, const ChoiceFields& fields) {
  const std::string bytes = ReadFile(path);
  ChoiceSet set;
  set.name = path.stem().string();
  set.hash = HashBytes(bytes);
  const Json whole = Json::parse(bytes, nullptr, false);
  const bool bbh = whole.is_object() && whole.contains("examples") && whole["examples"].is_array();
  set.questions = bbh ? BbhQuestions(whole["examples"], path.string())
                      : LineQuestions(bytes, fields, path.string());
  if (set.questions.empty()) throw Error("{} holds no questions", path.string());
  for (size_t i = 0; i < set.questions.size(); ++i) {
    ChoiceQuestion& question = set.questions[i];
    question.id = fmt::format("{}/{}", set.name, i);
    if (question.choices.size() < 2) throw Error("{}: a question needs two choices", question.id);
    for (const std::string& choice : question.choices) {
      if (CollapseSpaces(choice).empty()) throw Error("{}: a choice is empty", question.id);
    }
  }
  return set;
}

std::vector<LikelihoodRequest> ChoiceRequests(const Engine& engine,
                                              std::span<const ChoiceQuestion> examples,
                                              const ChoiceQuestion& question, bool raw) {
  std::string text;
  std::vector<ChatMessage> messages;
  for (const ChoiceQuestion& example : examples) {
    const std::string answer = fmt::format("{} {}", kAnswerMark, example.choices[example.answer]);
    text += fmt::format("{}\n{}\n\n", example.text, answer);
    messages.push_back({"user", example.text});
    messages.push_back({"assistant", answer});
  }
  text += fmt::format("{}\n{}", question.text, kAnswerMark);
  messages.push_back({"user", question.text});
  std::vector<LikelihoodRequest> requests;
  for (const std::string& choice : question.choices) {
    if (raw) {
      requests.push_back(EncodeContinuation(engine, text, " " + choice));
      continue;
    }
    // The answer begins with the mark; the chat template ends before it.
    LikelihoodRequest request = EncodeContinuation(engine, std::string(kAnswerMark), " " + choice);
    const std::vector<TokenId> chat = engine.Encode({.messages = messages, .text = {}});
    request.prompt.insert(request.prompt.begin(), chat.begin(), chat.end());
    requests.push_back(std::move(request));
  }
  return requests;
}

ChoiceResult EvaluateChoices(Engine& engine, const ChoiceEvalOptions& options,
                             const ChoiceProgress& progress) {
  struct Asked {
    const ChoiceQuestion* question;
    std::span<const ChoiceQuestion> examples;
    std::optional<Judged> judged;
  };
  std::vector<ChoiceSet> sets;
  for (const auto& path : options.data) {
    sets.push_back(ReadChoices(path, options.fields));
    for (size_t i = 0; i + 1 < sets.size(); ++i) {
      if (sets[i].name == sets.back().name) {
        throw Error("two data files are named {}: their samples could not be told apart",
                    sets[i].name);
      }
    }
  }
  Json data = Json::array();
  std::vector<std::vector<Asked>> asked;
  std::unordered_map<std::string, Asked*> by_id;
  size_t total = 0, done = 0, correct = 0;
  for (const ChoiceSet& set : sets) {
    data.push_back({{"name", set.name}, {"hash", fmt::format("{:016x}", set.hash)}});
    if (set.questions.size() <= options.few_shot) {
      throw Error("{} holds {} questions: too few for {} examples and a question", set.name,
                  set.questions.size(), options.few_shot);
    }
    const std::span questions(set.questions);
    auto scored = questions.subspan(options.few_shot);
    if (options.limit > 0) scored = scored.first(std::min(options.limit, scored.size()));
    asked.emplace_back();
    for (const ChoiceQuestion& question : scored) {
      asked.back().push_back({&question, questions.first(options.few_shot), {}});
    }
    total += scored.size();
  }
  for (auto& set : asked) {
    for (Asked& one : set) by_id[one.question->id] = &one;
  }
  const LikelihoodOptions& likelihood = options.likelihood;
  const Json settings = {{"model", fmt::format("{:016x}", engine.file().Fingerprint())},
                         {"kv", NameOf(engine.kv_type())},
                         {"task", "choices"},
                         {"question_field", options.fields.question},
                         {"choices_field", options.fields.choices},
                         {"answer_field", options.fields.answer},
                         {"data", data},
                         {"few_shot", options.few_shot},
                         {"raw", options.raw},
                         {"estimator", EstimatorName(likelihood.estimator)},
                         {"draws", likelihood.draws},
                         {"seed", likelihood.seed},
                         {"end_token", likelihood.end_token}};
  ChoiceResult result;
  result.settings = settings.dump();
  std::optional<SampleFile> records;
  if (!options.samples.empty()) records.emplace(options.samples, result.settings);
  const auto count = [&](Asked& one, const Judged& judged) {
    one.judged = judged;
    ++done;
    correct += judged.correct ? 1 : 0;
    if (progress) progress(done, total, correct);
  };
  if (records) {
    for (const Sample& sample : records->finished()) {
      const auto found = by_id.find(sample.id);
      if (found == by_id.end() || found->second->judged) continue;  // beyond this run's limit
      const ChoiceQuestion& question = *found->second->question;
      count(*found->second, Judge(question, ScoresFrom(sample.text, question.choices.size())));
      ++result.resumed;
    }
  }
  const auto start = std::chrono::steady_clock::now();
  for (auto& set : asked) {
    for (Asked& one : set) {
      if (one.judged) continue;
      const ChoiceQuestion& question = *one.question;
      const std::vector<Likelihood> scores = LogLikelihoods(
          engine, ChoiceRequests(engine, one.examples, question, options.raw), likelihood);
      const Judged judged = Judge(question, scores);
      if (records) {
        Sample sample;
        sample.id = question.id;
        sample.text = ScoresText(scores);
        const auto best = std::ranges::max_element(scores, {}, &Likelihood::log_probability);
        sample.answer = question.choices[static_cast<size_t>(best - scores.begin())];
        sample.expected = question.choices[question.answer];
        sample.correct = judged.correct;
        records->Append(sample);
      }
      count(one, judged);
    }
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::vector<Judged> all;
  for (size_t i = 0; i < sets.size(); ++i) {
    std::vector<Judged> judged;
    for (const Asked& one : asked[i]) judged.push_back(*one.judged);
    result.scores.push_back(ScoreOf(sets[i].name, judged));
    all.insert(all.end(), judged.begin(), judged.end());
  }
  result.total = ScoreOf("total", all);
  return result;
}

}  // namespace spa
