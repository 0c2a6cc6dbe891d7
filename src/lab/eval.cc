#include "lab/eval.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "decode/option_table.h"

namespace spa {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Sample SampleOf(const Engine& engine, const Generation& generation) {
  Sample sample;
  sample.text = AnswerText(engine, generation.decoder());
  sample.ids = CanvasIds(generation.decoder());
  sample.stats = generation.Stats();
  return sample;
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
  double tokens = 0.0, rows = 0.0, all_rows = 0.0, settled = 0.0, later_rows = 0.0;
  for (const Sample& sample : samples) {
    score.correct += sample.correct ? 1 : 0;
    tokens += static_cast<double>(sample.stats.generated_tokens);
    rows += static_cast<double>(sample.stats.rows_computed);
    all_rows += static_cast<double>(sample.stats.rows_total);
    settled += static_cast<double>(sample.stats.settled_tokens);
    later_rows += sample.stats.later_rows;
    score.seconds += sample.stats.engine_seconds;
    score.ttft_seconds += sample.stats.first_step_seconds;
    score.steps += static_cast<double>(sample.stats.steps);
    score.cache_bytes = std::max(score.cache_bytes, sample.stats.cache_bytes);
  }
  const auto count = static_cast<double>(score.count);
  score.tokens_per_step = score.steps > 0.0 ? settled / score.steps : 0.0;
  score.rows_per_token = settled > 0.0 ? later_rows / settled : 0.0;
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
                            const std::string& question, bool asked_raw) {
  const bool raw = asked_raw || engine.config().chat == "none";  // a base model
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

Json DecodeSettings(const DecodeOptions& options) {
  Json settings;
  for (const auto& [name, value] : DescribeDecodeOptions(options)) settings[name] = value;
  return settings;
}

// Everything that can change an answer, and the batch size, which changes the times. The limit is
// left out: a run may be extended.
Json Settings(const Engine& engine, const EvalOptions& o, std::span<const QuestionSet> sets,
              const PreparedCache& cache) {
  Json data = Json::array();
  for (const QuestionSet& set : sets) {
    data.push_back({{"name", set.name}, {"hash", fmt::format("{:016x}", set.hash)}});
  }
  Json settings = {{"model", fmt::format("{:016x}", engine.file().Fingerprint())},
                   {"kv", NameOf(engine.kv_type())},
                   {"task", TaskName(o.task.kind)},
                   {"extract", o.task.extract},
                   {"question_field", o.task.question_field},
                   {"answer_field", o.task.answer_field},
                   {"data", data},
                   {"few_shot", o.few_shot},
                   {"raw", o.raw},
                   {"batch", o.batch},
                   {"cache", cache.description},
                   {"decode", DecodeSettings(o.decode)}};
  if (o.warm) settings["warm"] = true;
  return settings;
}

// A question in progress: the prompt, the expected answer, and the record once finished.
struct Asked {
  const Question* question;
  size_t set;
  std::vector<TokenId> ids;
  Sample sample;
  bool finished = false;
};

// Errors in prompts surface here, before any time is spent on answers.
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
  const SharedCache cache = engine.PrepareCache(options.cache, {.warm = options.warm});
  const Json settings = Settings(engine, options, sets, *cache);
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
  for (auto& set : asked) {
    for (Asked& one : set) {
      if (!one.finished) open.push_back(&one);
    }
  }
  if (progress) progress(done, total, correct);
  // Always the first question of a file, so a resumed run gives the same answers.
  std::vector<std::unique_ptr<Generation>> donors(sets.size());
  const auto donor = [&](size_t set) {
    if (!donors[set]) {
      Runner runner(engine);
      Generation& first = runner.Add({asked[set].front().ids, options.decode, cache});
      runner.Step();
      donors[set] = runner.Remove(first);
    }
    return donors[set].get();
  };
  RunAll(
      engine, open.size(), options.batch,
      [&](size_t index) {
        const Asked& one = *open[index];
        return GenerationRequest{.prompt = one.ids,
                                 .decode = options.decode,
                                 .cache = cache,
                                 .warm_from = options.warm ? donor(one.set) : nullptr,
                                 .prefixes = nullptr};
      },
      [&](size_t index, Generation& generation) {
        const Question& question = *open[index]->question;
        Sample sample = SampleOf(engine, generation);
        sample.id = question.id;
        sample.expected = question.expected;
        const auto answer = grader.Extract(sample.text);
        sample.answer = answer.value_or("");
        sample.correct = answer && grader.Correct(*answer, question.expected);
        if (records) records->Append(sample);
        ++done;
        correct += sample.correct ? 1 : 0;
        open[index]->sample = std::move(sample);
        if (progress) progress(done, total, correct);
      });
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
