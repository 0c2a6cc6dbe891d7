// Multiple-choice questions: the model chooses the answer it finds most probable; nothing is
// generated. Scores as in lm-evaluation-harness: `accuracy` compares log-likelihoods, `normalised`
// divides each by the characters of its choice first.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "engine/likelihood.h"

namespace spa {

struct ChoiceQuestion {
  std::string id;  // name of the set and number of the question
  std::string text;
  std::vector<std::string> choices;
  size_t answer = 0;  // index of the right one
};

struct ChoiceSet {
  std::string name;
  uint64_t hash = 0;  // of the file's bytes
  std::vector<ChoiceQuestion> questions;
};

// Fields of JSON lines. Choices are a list of texts, or lists "text" and "label"; the answer is a
// number counted from 0, a label, a letter, or the text of a choice.
struct ChoiceFields {
  std::string question = "question", choices = "choices", answer = "answer";
};

// JSON lines, or a BBH file: its choices are those the question lists under "Options:", else the
// answers that occur in the file. Throws Error saying where the file is malformed.
ChoiceSet ReadChoices(const std::filesystem::path& path, const ChoiceFields& fields);

struct ChoiceEvalOptions {
  std::vector<std::filesystem::path> data;
  ChoiceFields fields;
  size_t limit = 0;     // questions per file; 0: all
  size_t few_shot = 0;  // the first questions of a file as solved examples, not scored
  bool raw = false;     // "question\nAnswer: choice" instead of the chat template
  LikelihoodOptions likelihood;
  std::filesystem::path samples;  // empty: no records
};

struct ChoiceScore {
  std::string name;
  size_t count = 0;
  double accuracy = 0.0, standard_error = 0.0;
  double normalised = 0.0, normalised_error = 0.0;
  double noise = 0.0;  // mean standard error of a log-likelihood
};

struct ChoiceResult {
  std::vector<ChoiceScore> scores;  // one per file
  ChoiceScore total;
  size_t resumed = 0;
  double seconds = 0.0;
  std::string settings;  // JSON
};

// A question as it is asked, with one request per choice.
std::vector<LikelihoodRequest> ChoiceRequests(const Engine& engine,
                                              std::span<const ChoiceQuestion> examples,
                                              const ChoiceQuestion& question, bool raw);

using ChoiceProgress = std::function<void(size_t done, size_t total, size_t correct)>;
ChoiceResult EvaluateChoices(Engine& engine, const ChoiceEvalOptions& options,
                             const ChoiceProgress& progress = {});

}  // namespace spa
