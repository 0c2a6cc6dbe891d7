// The C interface (include/spa/spa_c.h) over the engine. Nothing throws across it.
#include <algorithm>
#include <cstddef>
#include <new>
#include <sstream>

#include "api/sized_struct.h"
#include "base/error.h"
#include "engine/decode_choices.h"
#include "engine/runner.h"
#include "spa/spa_c.h"

struct spa_model {
  spa::Engine engine;
};

struct spa_result {
  std::string text;
  std::vector<int32_t> ids;
  spa::GenerationStats stats;
};

namespace spa {
namespace {

// Of the structs' first versions: these never change.
constexpr size_t kFirstPolicy = offsetof(spa_policy, end_step) + sizeof(spa_policy::end_step);
constexpr size_t kFirstOptions =
    offsetof(spa_generate_options, user) + sizeof(spa_generate_options::user);

thread_local std::string last_error;

struct Stopped {};

// Runs `call` and turns what it throws into a status.
template <typename Call>
spa_status Guarded(const Call& call) {
  last_error.clear();
  try {
    call();
    return SPA_OK;
  } catch (const Stopped&) {
    last_error = "stopped by a callback";
    return SPA_STOPPED;
  } catch (const std::bad_alloc&) {
    last_error = "not enough memory";
    return SPA_MEMORY;
  } catch (const Error& error) {
    last_error = error.what();
    return SPA_INVALID;
  } catch (const std::exception& error) {
    last_error = error.what();
    return SPA_INTERNAL;
  }
}

void Require(bool good, const char* what) {
  if (!good) throw Error("{}", what);
}

spa_rows View(const RowSet& rows) {
  const std::span<const uint32_t> span = rows;
  return {span.data(), span.size()};
}

// Checks the rows that a callback returned.
RowSet Checked(const spa_rows& rows, const RowSet& among) {
  Require(rows.count == 0 || rows.rows != nullptr, "a cache returned no rows where it named some");
  RowSet set(std::vector<uint32_t>(rows.rows, rows.rows + rows.count));
  Require(among.Includes(set), "a cache returned a row that is not there");
  return set;
}

// A cache that calls the user's callbacks.
class ForeignPolicy : public CachePolicy {
 public:
  explicit ForeignPolicy(const spa_policy& policy)
      : policy_(policy),
        state_(policy.create != nullptr ? policy.create(policy.user) : policy.user) {}
  ~ForeignPolicy() override {
    if (policy_.destroy != nullptr) policy_.destroy(state_);
  }
  ForeignPolicy(const ForeignPolicy&) = delete;
  ForeignPolicy& operator=(const ForeignPolicy&) = delete;

  Keeps keeps() const override {
    return {.reuse = policy_.reuse == SPA_REUSE_UPDATE   ? Reuse::kUpdate
                     : policy_.reuse == SPA_REUSE_OUTPUT ? Reuse::kOutput
                                                         : Reuse::kNothing};
  }

  RowSet BeginStep(const StepInput& step) override {
    step_ = {.ids = step.ids.data(),
             .masked = step.masked.data(),
             .num_rows = step.num_rows(),
             .prompt_length = step.prompt_length,
             .block_begin = step.block_begin,
             .block_end = step.block_end,
             .step = step.step,
             .step_in_block = step.step_in_block,
             .visible = View(step.visible),
             .changed = View(step.changed),
             .wanted = View(step.wanted)};
    spa_rows rows = {};
    if (policy_.begin_step(state_, &step_, &rows) != 0) throw Stopped{};
    return Checked(rows, step.visible);
  }

  LayerPlan PlanLayer(LayerView& view) override {
    const spa_layer layer = {.layer = view.layer,
                             .num_layers = view.config->num_layers,
                             .step = &step_,
                             .inputs = view.x.data,
                             .model_dim = view.x.cols,
                             .live = View(*view.live)};
    spa_rows rows = {};
    if (policy_.plan_layer(state_, &layer, &rows) != 0) throw Stopped{};
    LayerPlan plan = LayerPlan::Of(Checked(rows, *view.live));
    if (policy_.reuse != SPA_REUSE_NOTHING) plan.live = *view.live;
    return plan;
  }

  void EndStep(std::span<const uint32_t>, std::span<const float>) override {
    if (policy_.end_step != nullptr) policy_.end_step(state_);
  }

 private:
  spa_policy policy_;
  void* state_;
  spa_step step_ = {};
};

SharedCache CacheOf(Engine& engine, const spa_generate_options& options, bool exact) {
  const bool named = options.cache != nullptr && std::string_view(options.cache) != "none";
  Require(!exact || (!named && options.policy == nullptr),
          "exact decoding uses no cache: leave out cache and policy");
  if (options.policy == nullptr) {
    return engine.PrepareCache(
        ParseCacheSpec(options.cache != nullptr ? options.cache : engine.DefaultCache()));
  }
  const spa_policy policy = CopySized(options.policy, kFirstPolicy, "spa_policy");
  Require(policy.begin_step != nullptr && policy.plan_layer != nullptr,
          "a cache needs begin_step and plan_layer");
  auto cache = std::make_shared<PreparedCache>();
  cache->spec.name = cache->description = "custom";
  cache->make = [policy] { return std::make_unique<ForeignPolicy>(policy); };
  return cache;
}

DecodeOptions DecodeOf(const Engine& engine, const char* text) {
  DecodeChoices choices;
  std::istringstream words(text != nullptr ? text : "");
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) {
      throw Error("the option '{}' is not of the form name=value", word);
    }
    choices.Set(word.substr(0, equals), word.substr(equals + 1));
  }
  return choices.Resolve(engine);
}

void Report(const Engine& engine, const Generation& generation,
            const spa_generate_options& options) {
  const Decoder& decoder = generation.decoder();
  const std::vector<int32_t> ids = CanvasIds(decoder);
  std::vector<uint8_t> settled;
  for (const uint8_t masked : decoder.masked().subspan(decoder.prompt_length(), ids.size())) {
    settled.push_back(masked ? 0 : 1);
  }
  std::string text;
  if (engine.has_tokenizer()) {
    text = engine.tokenizer().Decode(
        {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(decoder.SettledPrefix().length)});
  }
  const spa_frame frame = {.step = decoder.steps(),
                           .ids = ids.data(),
                           .settled = settled.data(),
                           .num_ids = ids.size(),
                           .text = text.c_str()};
  if (options.on_step(options.user, &frame) != 0) throw Stopped{};
}

void CopyIds(const std::vector<TokenId>& from, int32_t* ids, size_t capacity, size_t* count) {
  Require(count != nullptr, "count is NULL");
  *count = from.size();
  std::copy_n(from.begin(), std::min(capacity, from.size()), ids);
}

}  // namespace
}  // namespace spa

using spa::Guarded;
using spa::Require;

const char* spa_last_error(void) { return spa::last_error.c_str(); }

spa_status spa_model_load(const char* path, size_t threads, spa_model** model) {
  return Guarded([&] {
    Require(model != nullptr, "model is NULL");
    *model = new spa_model{spa::Engine(
        {.model = path != nullptr ? path : "", .threads = threads, .kv_type = {}, .progress = {}})};
  });
}

void spa_model_free(spa_model* model) { delete model; }
size_t spa_model_vocab_size(const spa_model* model) { return model->engine.config().vocab_rows; }
size_t spa_model_num_layers(const spa_model* model) { return model->engine.config().num_layers; }
int32_t spa_model_mask_id(const spa_model* model) { return model->engine.config().mask_id; }

spa_status spa_tokenize(spa_model* model, const char* text, int32_t* ids, size_t capacity,
                        size_t* count) {
  return Guarded(
      [&] { spa::CopyIds(model->engine.tokenizer().Encode(text), ids, capacity, count); });
}

spa_status spa_tokenize_chat(spa_model* model, const char* question, int32_t* ids, size_t capacity,
                             size_t* count) {
  return Guarded([&] {
    spa::CopyIds(model->engine.Encode({.messages = {{"user", question}}, .text = {}}), ids,
                 capacity, count);
  });
}

spa_status spa_detokenize(spa_model* model, const int32_t* ids, size_t count, char* text,
                          size_t capacity, size_t* size) {
  return Guarded([&] {
    Require(size != nullptr, "size is NULL");
    for (size_t i = 0; i < count; ++i) {
      Require(ids[i] >= 0 && static_cast<size_t>(ids[i]) < spa_model_vocab_size(model),
              "a token id is outside the vocabulary");
    }
    const std::string decoded = model->engine.tokenizer().Decode({ids, ids + count});
    *size = decoded.size();
    if (capacity == 0) return;
    const size_t copied = std::min(capacity - 1, decoded.size());
    std::copy_n(decoded.data(), copied, text);
    text[copied] = '\0';
  });
}

spa_status spa_logits(spa_model* model, const int32_t* ids, size_t count, float* logits) {
  return Guarded([&] {
    const size_t vocab = spa_model_vocab_size(model);
    model->engine.DenseLogits({ids, count}, [&](size_t row, std::span<const float> values) {
      std::ranges::copy(values, logits + row * vocab);
    });
  });
}

spa_status spa_generate(spa_model* model, const int32_t* prompt, size_t count,
                        const spa_generate_options* given, spa_result** result) {
  return Guarded([&] {
    Require(result != nullptr, "result is NULL");
    spa_generate_options options = {};
    if (given != nullptr) {
      options = spa::CopySized(given, spa::kFirstOptions, "spa_generate_options");
    }
    spa::Engine& engine = model->engine;
    const spa::DecodeOptions decode = spa::DecodeOf(engine, options.options);
    const auto generation = spa::RunAlone(
        engine, {{prompt, prompt + count}, decode, spa::CacheOf(engine, options, decode.exact)},
        [&](spa::Generation& running) {
          if (options.on_step != nullptr) spa::Report(engine, running, options);
        });
    *result = new spa_result{spa::AnswerText(engine, generation->decoder()),
                             spa::CanvasIds(generation->decoder()), generation->Stats()};
  });
}

void spa_result_free(spa_result* result) { delete result; }
const char* spa_result_text(const spa_result* result) { return result->text.c_str(); }
const int32_t* spa_result_ids(const spa_result* result, size_t* count) {
  *count = result->ids.size();
  return result->ids.data();
}
size_t spa_result_steps(const spa_result* result) { return result->stats.steps; }
double spa_result_seconds(const spa_result* result) { return result->stats.seconds; }
double spa_result_rows_fraction(const spa_result* result) { return result->stats.rows_fraction(); }
