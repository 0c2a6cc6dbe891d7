// Accuracy on questions with known answers: runs them in batches, extracts the answer from each
// text and keeps a record per question. An interrupted run resumes from its records: nothing
// finished is lost or repeated.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/runner.h"
#include "lab/questions.h"
#include "lab/samples.h"

namespace spa {

// The record of a generation; the caller fills in id, answer and judgement.
Sample SampleOf(const Engine& engine, const Generation& generation);

// sqrt(p (1 - p) / (n - 1)); 0 for fewer than two.
double StandardError(double ratio, size_t count);

// Totals over a set of samples.
struct Score {
  std::string name;
  size_t count = 0, correct = 0;
  double accuracy = 0.0, standard_error = 0.0;
  double tokens_per_second = 0.0;  // answer tokens per second of engine time
  double ttft_seconds = 0.0;       // mean time to the end of the first step
  double seconds = 0.0;            // engine time
  double steps = 0.0;              // mean
  double rows_fraction = 0.0;
  double tokens_per_step = 0.0;  // settled tokens
  double rows_per_token = 0.0;   // rows through all layers after the first step, per settled token
  size_t cache_bytes = 0;        // of the largest sequence
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
  bool raw = false;   // plain text instead of the chat template
  bool warm = false;  // the prefix all questions of a file share is computed once
  DecodeOptions decode;
  CacheSpec cache;
  std::filesystem::path samples;  // empty: no records
};

struct EvalResult {
  std::vector<Score> scores;  // one per file
  Score total;
  size_t resumed = 0;    // samples read from the records
  std::string settings;  // JSON
};

// `progress` gets the numbers of questions done, in all, and answered correctly.
using EvalProgress = std::function<void(size_t done, size_t total, size_t correct)>;
EvalResult Evaluate(Engine& engine, const EvalOptions& options, const EvalProgress& progress = {});

// The ids of a question as it is asked, after solved examples.
std::vector<TokenId> AskIds(const Engine& engine, std::span<const Question> examples,
                            const std::string& question, bool raw);

}  // namespace spa
