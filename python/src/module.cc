// The extension module spa._spa: the engine as the Python code in spa/ uses it. Whatever computes
// runs without the GIL; a model computes for one thread at a time, so threads may share it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>

#include "arrays.h"
#include "base/error.h"
#include "decode/option_table.h"
#include "engine/decode_choices.h"
#include "engine/likelihood.h"
#include "engine/memory.h"
#include "engine/option_reference.h"
#include "engine/runner.h"
#include "lab/compare.h"
#include "lab/eval.h"
#include "policy.h"
#include "spa/version.h"
#include "text/text_stream.h"

namespace spa::python {
namespace {

using namespace nb::literals;

using Choices = std::map<std::string, std::string>;

// Ctrl-C during a long computation ends it.
void CheckSignals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

class Model {
 public:
  Model(const std::filesystem::path& path, size_t threads, const std::string& kv_type)
      : engine({.model = path,
                .threads = threads,
                .kv_type = ParseKvType(kv_type),
                .progress = [](std::string_view, double) { CheckSignals(); }}) {}

  // Runs without the GIL, one thread at a time.
  template <typename Call>
  auto Compute(const Call& call) {
    if (owner_ == std::this_thread::get_id()) {
      throw Error("a model cannot be used from inside a cache that it is calling");
    }
    const nb::gil_scoped_release release;
    const std::lock_guard lock(mutex_);
    struct Owned {
      std::atomic<std::thread::id>& owner;
      explicit Owned(std::atomic<std::thread::id>& o) : owner(o) {
        owner = std::this_thread::get_id();
      }
      ~Owned() { owner = std::thread::id(); }
    } owned(owner_);
    return call();
  }

  DecodeOptions Decode(const Choices& given) const { return Parse(given).Resolve(engine); }

  static DecodeChoices Parse(const Choices& given) {
    DecodeChoices choices;
    for (const auto& [name, value] : given) choices.Set(name, value);
    return choices;
  }

  Engine engine;

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_;
};

SharedCache PrepareNamed(Model& model, const std::string& spec) {
  return model.Compute([&] { return model.engine.PrepareCache(ParseCacheSpec(spec)); });
}

// A cache whose policies `make` returns, without a name in the registry.
SharedCache PrepareOwn(Model& model, const std::string& name, nb::object make) {
  const std::shared_ptr<nb::object> shared = Share(std::move(make));
  return model.Compute([&]() -> SharedCache {
    auto cache = std::make_shared<PreparedCache>();
    cache->spec.name = cache->description = name;
    cache->make = PythonPolicies(shared, model.engine.policy_context());
    return cache;
  });
}

// Generations that run together, with what their results and pictures need.
class Runs {
 public:
  explicit Runs(Model& model) : model_(model), runner_(model.engine) {}
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;

  size_t Add(std::vector<TokenId> ids, const Choices& choices, const SharedCache& cache) {
    Generation* added = model_.Compute([&] {
      const DecodeOptions decode = model_.Decode(choices);
      CheckMemory(model_.engine, ids.size(), decode, *cache, AvailableMemory());
      return &runner_.Add({std::move(ids), decode, cache});
    });
    added->state().trace = true;
    runs_[next_].generation = added;
    return next_++;
  }

  // One forward pass for all; returns those that have finished.
  std::vector<size_t> Step() {
    model_.Compute([&] {
      runner_.Step();
      for (auto& [key, run] : runs_) {
        if (!run.finished) Record(run);
      }
      for (auto& generation : runner_.TakeFinished()) {
        for (auto& [key, run] : runs_) {
          if (run.generation == generation.get()) {
            run.finished = std::move(generation);
            break;
          }
        }
      }
    });
    std::vector<size_t> finished;
    for (const auto& [key, run] : runs_) {
      if (run.finished) finished.push_back(key);
    }
    return finished;
  }

  nb::dict Frame(size_t key) {
    Run& run = runs_.at(key);
    const Decoder& decoder = run.generation->decoder();
    const Decoder::Prefix prefix = decoder.SettledPrefix();
    const size_t begin = decoder.prompt_length();
    std::vector<float> confidence(decoder.canvas().size(), std::numeric_limits<float>::quiet_NaN());
    for (size_t i = 0; i < decoder.positions().size(); ++i) {
      const size_t place = decoder.positions()[i] - begin;
      if (place < confidence.size()) {
        confidence[place] = static_cast<float>(decoder.candidates()[i].probability);
      }
    }
    nb::list rows;
    for (const RowSet& layer : run.generation->state().traced_rows) {
      rows.append(Copy<uint32_t>(layer));
    }
    nb::dict frame;
    frame["step"] = decoder.steps();
    frame["ids"] = Copy<int32_t>(decoder.canvas());
    frame["settled"] = Copy<bool>(Settled(decoder));
    frame["confidence"] = Copy<float>(confidence);
    frame["rows"] = rows;
    frame["length"] = prefix.length;
    frame["ended"] = prefix.ended || decoder.done();
    return frame;
  }

  // The result of a run, which is then removed.
  nb::dict Take(size_t key) {
    const auto found = runs_.find(key);
    if (found == runs_.end()) throw Error("there is no such generation");
    Run run = std::move(found->second);
    runs_.erase(found);
    const Generation& generation = *run.generation;
    const GenerationStats stats = generation.Stats();
    const size_t layers = model_.engine.config().num_layers;
    nb::dict result;
    result["text"] = AnswerText(model_.engine, generation.decoder());
    result["ids"] = Copy<int32_t>(generation.decoder().canvas());
    result["ended"] = stats.ended;
    result["steps"] = stats.steps;
    result["seconds"] = stats.engine_seconds;
    result["first_step_seconds"] = stats.first_step_seconds;
    result["prompt_tokens"] = stats.prompt_tokens;
    result["generated_tokens"] = stats.generated_tokens;
    result["rows_computed"] = stats.rows_computed;
    result["rows_total"] = stats.rows_total;
    result["cache"] = stats.cache;
    result["cache_bytes"] = stats.cache_bytes;
    result["settled_at"] = Copy<int32_t>(run.settled_at);
    result["confidence"] = Copy<float>(run.confidence);
    result["rows"] = nb::cast(Copy<uint32_t>(run.rows)).attr("reshape")(-1, layers);
    if (!run.finished) {
      model_.Compute([&] { run.finished = runner_.Remove(*run.generation); });
    }
    return result;
  }

 private:
  struct Run {
    Generation* generation = nullptr;
    std::unique_ptr<Generation> finished;
    std::vector<uint32_t> rows;       // [steps, layers]: how many were recomputed
    std::vector<int32_t> settled_at;  // per position of the canvas; 0: not by a step
    std::vector<float> confidence;    // when it was settled
  };

  static std::vector<bool> Settled(const Decoder& decoder) {
    std::vector<bool> settled;
    for (const uint8_t masked :
         decoder.masked().subspan(decoder.prompt_length(), decoder.canvas().size())) {
      settled.push_back(masked == 0);
    }
    return settled;
  }

  static void Record(Run& run) {
    for (const RowSet& layer : run.generation->state().traced_rows) {
      run.rows.push_back(static_cast<uint32_t>(layer.size()));
    }
    const Decoder& decoder = run.generation->decoder();
    run.settled_at.resize(decoder.canvas().size());  // a canvas may grow
    run.confidence.resize(decoder.canvas().size());
    const auto place = [&](uint32_t position) { return position - decoder.prompt_length(); };
    for (const uint32_t position : decoder.changed()) {
      if (place(position) < run.settled_at.size()) {
        run.settled_at[place(position)] = static_cast<int32_t>(decoder.steps());
      }
    }
    for (size_t i = 0; i < decoder.positions().size(); ++i) {
      const uint32_t position = decoder.positions()[i];
      if (place(position) < run.confidence.size() && decoder.changed().Contains(position)) {
        run.confidence[place(position)] = static_cast<float>(decoder.candidates()[i].probability);
      }
    }
  }

  Model& model_;
  Runner runner_;
  std::map<size_t, Run> runs_;
  size_t next_ = 0;
};

Matrix<float> Logits(Model& model, const std::vector<TokenId>& ids) {
  auto logits = std::make_unique<Mat<float>>(ids.size(), model.engine.config().vocab_rows);
  model.Compute([&] {
    model.engine.DenseLogits(ids, [&](size_t row, std::span<const float> values) {
      std::ranges::copy(values, logits->Row(row));
    });
  });
  return Give(std::move(logits));
}

std::vector<Likelihood> RunLikelihoods(Model& model, std::vector<LikelihoodRequest> requests,
                                       const std::string& estimator, size_t draws, uint64_t seed,
                                       bool end_token, bool greedy) {
  LikelihoodOptions options;
  options.estimator = ParseEstimator(estimator);
  options.draws = draws;
  options.seed = seed;
  options.end_token = end_token;
  options.greedy = greedy;
  return model.Compute([&] {
    return LogLikelihoods(model.engine, std::move(requests), options,
                          [](double /*share*/) { CheckSignals(); });
  });
}

std::vector<TokenId> Encode(const Model& model,
                            const std::vector<std::pair<std::string, std::string>>& messages,
                            const std::string& text) {
  Prompt prompt{.messages = {}, .text = text};
  for (const auto& [role, content] : messages) prompt.messages.push_back({role, content});
  return model.engine.Encode(prompt);
}

TaskOptions Task(const std::string& kind, const std::string& extract, const std::string& question,
                 const std::string& answer) {
  return {ParseTaskKind(kind), extract, question, answer};
}

EvalResult RunEvaluate(Model& model, const std::vector<std::filesystem::path>& data,
                       const TaskOptions& task, const std::string& cache, const Choices& choices,
                       size_t limit, size_t few_shot, size_t batch, bool raw, bool warm,
                       const std::filesystem::path& samples, nb::object progress) {
  if (batch == 0) throw Error("a batch has at least one question");
  const EvalProgress report = [&](size_t done, size_t total, size_t correct) {
    const nb::gil_scoped_acquire gil;
    if (!progress.is_none()) progress(done, total, correct);
  };
  return model.Compute([&] {
    return Evaluate(model.engine,
                    {.task = task,
                     .data = data,
                     .limit = limit,
                     .few_shot = few_shot,
                     .batch = batch,
                     .raw = raw,
                     .warm = warm,
                     .decode = model.Decode(choices),
                     .cache = ParseCacheSpec(cache),
                     .samples = samples},
                    report);
  });
}

std::vector<CompareRow> RunCompare(Model& model, const std::vector<Question>& questions,
                                   const TaskOptions& task,
                                   const std::optional<std::vector<std::string>>& caches,
                                   const Choices& choices, std::optional<double> parallel,
                                   size_t batch, nb::object progress) {
  if (batch == 0) throw Error("a batch has at least one question");
  const Progress report = [&](std::string_view what, double share) {
    const nb::gil_scoped_acquire gil;
    if (!progress.is_none()) progress(std::string(what), share);
  };
  return model.Compute([&] {
    std::vector<CacheSpec> specs;
    if (caches) {
      for (const std::string& cache : *caches) specs.push_back(ParseCacheSpec(cache));
    }
    const DecodeChoices given = Model::Parse(choices);
    const std::vector<std::string> labels = DefaultRules(given, model.engine, parallel);
    std::vector<CompareRule> rules;
    rules.reserve(labels.size());
    for (const std::string& label : labels) {
      rules.push_back(ParseRule(label, given, model.engine));
    }
    return CompareCaches(model.engine,
                         {.entries = caches ? Entries(specs) : AllCaches(model.engine),
                          .rules = rules,
                          .batch = batch,
                          .task = task},
                         questions, report);
  });
}

// `bind` gets the options that were given, as text, and returns what makes a policy.
void Register(const std::string& name, const std::string& summary,
              const std::vector<std::pair<std::string, std::string>>& options, nb::object bind,
              const std::string& note) {
  CacheInfo info{.name = name, .summary = summary, .full_options = "", .options = {}};
  for (const auto& [option, fallback] : options) {
    info.options.push_back(OptionInfo::Text(option, fallback, ""));
  }
  const std::vector<OptionInfo> table = info.options;
  AddCache(std::move(info), [shared = Share(std::move(bind)), table, note](
                                OptionReader& reader, const PolicyContext& context) {
    std::shared_ptr<nb::object> make;
    {
      const nb::gil_scoped_acquire gil;
      nb::dict given;
      for (const OptionInfo& option : table) {
        const std::string text = reader.Text(option.name, "");
        if (!text.empty()) given[option.name.c_str()] = text;
      }
      make = Share((*shared)(given));
    }
    reader.Note(note);
    return PythonPolicies(std::move(make), context);
  });
}

}  // namespace

void BindModel(nb::module_& module) {
  nb::class_<PreparedCache>(module, "Cache", "A cache prepared for a model.")
      .def_ro("description", &PreparedCache::description);
  nb::class_<Model>(module, "Model")
      .def(nb::init<const std::filesystem::path&, size_t, const std::string&>(), "path"_a,
           "threads"_a, "kv"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("name", [](const Model& m) { return m.engine.config().name; })
      .def_prop_ro("vocab_size", [](const Model& m) { return m.engine.config().vocab_rows; })
      .def_prop_ro("num_layers", [](const Model& m) { return m.engine.config().num_layers; })
      .def_prop_ro("width", [](const Model& m) { return m.engine.config().model_dim; })
      .def_prop_ro("context_length",
                   [](const Model& m) { return m.engine.config().context_length; })
      .def_prop_ro("mask_id", [](const Model& m) { return m.engine.config().mask_id; })
      .def_prop_ro("stop_ids", [](const Model& m) { return m.engine.vocabulary().stop_ids; })
      .def_prop_ro("default_cache", [](const Model& m) { return m.engine.DefaultCache(); })
      .def_prop_ro("has_tokenizer", [](const Model& m) { return m.engine.has_tokenizer(); })
      .def_prop_ro("threads", [](Model& m) { return m.engine.pool().num_threads(); })
      .def_prop_ro(
          "fingerprint",
          [](const Model& m) { return fmt::format("{:016x}", m.engine.file().Fingerprint()); })
      .def("encode", Encode, "messages"_a, "text"_a)
      .def(
          "tokenize",
          [](const Model& m, const std::string& text, bool special) {
            const Tokenizer& tokenizer = m.engine.tokenizer();
            return special ? tokenizer.EncodeWithSpecial(text) : tokenizer.Encode(text);
          },
          "text"_a, "special"_a)
      .def(
          "detokenize",
          [](const Model& m, const std::vector<TokenId>& ids) {
            for (const TokenId id : ids) {
              if (id < 0 || static_cast<size_t>(id) >= m.engine.config().vocab_rows) {
                throw Error("the token id {} is outside the vocabulary of {} tokens", id,
                            m.engine.config().vocab_rows);
              }
            }
            return m.engine.tokenizer().Decode(ids);
          },
          "ids"_a)
      .def("logits", Logits, "ids"_a)
      .def(
          "encode_continuation",
          [](const Model& m, const std::string& text, const std::string& continuation) {
            return EncodeContinuation(m.engine, text, continuation);
          },
          "text"_a, "continuation"_a)
      .def("loglikelihoods", RunLikelihoods, "requests"_a, "estimator"_a, "draws"_a, "seed"_a,
           "end_token"_a, "greedy"_a)
      .def(
          "decode_options",
          [](const Model& m, const Choices& choices) {
            return DescribeDecodeOptions(m.Decode(choices));
          },
          "choices"_a)
      .def("prepare", PrepareNamed, "spec"_a)
      .def("prepare_own", PrepareOwn, "name"_a, "make"_a)
      .def("evaluate", RunEvaluate, "data"_a, "task"_a, "cache"_a, "choices"_a, "limit"_a,
           "few_shot"_a, "batch"_a, "raw"_a, "warm"_a, "samples"_a, "progress"_a = nb::none())
      .def("compare", RunCompare, "questions"_a, "task"_a, "caches"_a.none(), "choices"_a,
           "parallel"_a.none(), "batch"_a, "progress"_a = nb::none());
  nb::class_<Runs>(module, "Runs", "Generations that run together.")
      .def(nb::init<Model&>(), "model"_a, nb::keep_alive<1, 2>())
      .def("add", &Runs::Add, "ids"_a, "choices"_a, "cache"_a)
      .def("step", &Runs::Step)
      .def("frame", &Runs::Frame, "key"_a)
      .def("take", &Runs::Take, "key"_a);
  nb::class_<TextStream>(module, "TextStream", "Whole characters as tokens arrive.")
      .def(
          "__init__",
          [](TextStream* stream, const Model& model) {
            new (stream) TextStream(model.engine.tokenizer());
          },
          "model"_a, nb::keep_alive<1, 2>())
      .def("append", &TextStream::Append, "ids"_a)
      .def("finish", &TextStream::Finish);
}

void BindLikelihood(nb::module_& module) {
  nb::class_<LikelihoodRequest>(module, "LikelihoodRequest", "Ids, and the ids scored after them.")
      .def(
          "__init__",
          [](LikelihoodRequest* request, std::vector<TokenId> prompt, std::vector<TokenId> target) {
            new (request) LikelihoodRequest{std::move(prompt), std::move(target)};
          },
          "prompt"_a, "target"_a)
      .def_rw("prompt", &LikelihoodRequest::prompt)
      .def_rw("target", &LikelihoodRequest::target);
  nb::class_<TokenLikelihood>(module, "TokenLikelihood", "One token, left to right.")
      .def_ro("log_probability", &TokenLikelihood::log_probability)
      .def_ro("best", &TokenLikelihood::best, "the most probable token there")
      .def_ro("best_log_probability", &TokenLikelihood::best_log_probability)
      .def("__repr__", [](const TokenLikelihood& t) {
        return fmt::format("<spa.TokenLikelihood {:.4f}, best {}: {:.4f}>", t.log_probability,
                           t.best, t.best_log_probability);
      });
  nb::class_<Likelihood>(module, "Likelihood", "How probable a target is after its prompt.")
      .def_ro("log_probability", &Likelihood::log_probability, "natural logarithm, whole target")
      .def_ro("standard_error", &Likelihood::standard_error, "of the estimate; 0 without draws")
      .def_ro("is_greedy", &Likelihood::is_greedy,
              "None unless `greedy` or the chain was asked for")
      .def_ro("tokens", &Likelihood::tokens, "of the chain: one for each token of the target")
      .def("__repr__", [](const Likelihood& l) {
        return fmt::format("<spa.Likelihood {:.4f} ± {:.4f}{}>", l.log_probability,
                           l.standard_error,
                           !l.is_greedy   ? ""
                           : *l.is_greedy ? ", greedy"
                                          : ", not greedy");
      });
}

void BindLab(nb::module_& module) {
  nb::class_<TaskOptions>(module, "Task")
      .def(
          "__init__",
          [](TaskOptions* task, const std::string& kind, const std::string& extract,
             const std::string& question, const std::string& answer) {
            new (task) TaskOptions(Task(kind, extract, question, answer));
          },
          "kind"_a, "extract"_a, "question_field"_a, "answer_field"_a);
  nb::class_<Question>(module, "Question", "A question with its answer.")
      .def(
          "__init__",
          [](Question* question, const std::string& text, const std::string& expected) {
            new (question) Question{.id = {}, .text = text, .worked = {}, .expected = expected};
          },
          "text"_a, "expected"_a = "")
      .def_ro("id", &Question::id)
      .def_ro("text", &Question::text)
      .def_ro("expected", &Question::expected)
      .def("__repr__", [](const Question& q) {
        return nb::str(nb::str("spa.Question({!r}, {!r})").attr("format")(q.text, q.expected));
      });
  module.def(
      "read_questions",
      [](const std::filesystem::path& path, const TaskOptions& task) {
        return ReadQuestions(path, task).questions;
      },
      "path"_a, "task"_a);
  module.def("built_in_questions", BuiltInQuestions);
  nb::class_<Score>(module, "Score", "Totals over a set of questions.")
      .def_ro("name", &Score::name)
      .def_ro("count", &Score::count)
      .def_ro("correct", &Score::correct)
      .def_ro("accuracy", &Score::accuracy)
      .def_ro("standard_error", &Score::standard_error)
      .def_ro("tokens_per_second", &Score::tokens_per_second)
      .def_ro("ttft_seconds", &Score::ttft_seconds)
      .def_ro("seconds", &Score::seconds)
      .def_ro("steps", &Score::steps)
      .def_ro("rows_fraction", &Score::rows_fraction)
      .def_ro("cache_bytes", &Score::cache_bytes)
      .def("__repr__", [](const Score& s) {
        return fmt::format("<spa.Score {}: {} of {} correct, {:.1f} tokens/s, {:.1f}% of rows>",
                           s.name, s.correct, s.count, s.tokens_per_second, 100 * s.rows_fraction);
      });
  nb::class_<EvalResult>(module, "EvalResult")
      .def_ro("scores", &EvalResult::scores)
      .def_ro("total", &EvalResult::total)
      .def_ro("resumed", &EvalResult::resumed)
      .def_ro("settings", &EvalResult::settings);
  nb::class_<Pairs>(module, "Pairs", "Questions that only one of two ways answered rightly.")
      .def_ro("lost", &Pairs::lost)
      .def_ro("won", &Pairs::won)
      .def_prop_ro("p_value", &Pairs::p_value);
  nb::class_<CompareRow>(module, "CompareRow", "One cache in a comparison.")
      .def_ro("cache", &CompareRow::cache)
      .def_ro("rule", &CompareRow::rule)
      .def_ro("tokens_per_second", &CompareRow::tokens_per_second)
      .def_ro("speedup", &CompareRow::speedup)
      .def_ro("ttft_ms", &CompareRow::ttft_ms)
      .def_ro("steps", &CompareRow::steps)
      .def_ro("rows_fraction", &CompareRow::rows_fraction)
      .def_ro("tokens_per_step", &CompareRow::tokens_per_step)
      .def_ro("rows_per_token", &CompareRow::rows_per_token)
      .def_ro("agreement", &CompareRow::agreement)
      .def_ro("accuracy", &CompareRow::accuracy)
      .def_ro("standard_error", &CompareRow::standard_error)
      .def_ro("against_none", &CompareRow::against_none)
      .def_ro("against_fast_dual", &CompareRow::against_fast_dual)
      .def_ro("memory_bytes", &CompareRow::memory_bytes)
      .def("__repr__", [](const CompareRow& r) {
        return fmt::format(
            "<spa.CompareRow {}, {}: {:.1f} tokens/s ({:.2f}x), {:.1f}% of rows, {:.1f}% "
            "agreement>",
            r.cache, r.rule, r.tokens_per_second, r.speedup, 100 * r.rows_fraction,
            100 * r.agreement);
      });
  module.def(
      "compare_report",
      [](const std::vector<CompareRow>& rows, const std::string& model, size_t questions) {
        if (rows.empty()) throw Error("there are no rows to report");
        return CompareReport(rows, model, questions);
      },
      "rows"_a, "model"_a, "num_questions"_a);
}

}  // namespace spa::python

NB_MODULE(_spa, module) {
  using namespace spa::python;   // NOLINT
  nb::set_leak_warnings(false);  // a traceback may hold a model until the end
  module.attr("version") = SPA_VERSION_STRING;
  nb::exception<spa::Error>(module, "Error");
  BindLikelihood(module);
  BindModel(module);
  BindLab(module);
  BindPolicy(module);
  module.def("register", Register, nb::arg("name"), nb::arg("summary"), nb::arg("options"),
             nb::arg("bind"), nb::arg("note"));
  module.def("remove_registered", spa::RemoveAddedCaches);
  module.def("options", [] { return spa::OptionsJson().dump(); });
  spa::SetBeforeStep(CheckSignals);
  nb::module_::import_("atexit").attr("register")(module.attr("remove_registered"));
}
