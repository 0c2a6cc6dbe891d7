#include "engine/engine.h"

#include <sys/resource.h>

#include <algorithm>

#include "base/error.h"
#include "engine/memory.h"
#include "kernels/state_memory.h"
#include "policies/none.h"
#include "text/text_stream.h"

namespace spa {
namespace {

std::unique_ptr<ModelFile> OpenModel(const std::filesystem::path& path) {
  if (!path.empty()) return std::make_unique<ModelFile>(ModelFile::Open(path));
  if (EmbeddedModel().empty()) {
    throw Error("this build has no embedded model: give one with -m MODEL");
  }
  return std::make_unique<ModelFile>(ModelFile::FromMemory(EmbeddedModel(), "the embedded model"));
}

KvType StandardKvType(const ModelFile& file) {
  const bool quantised = Info(file.Get(TensorRole::kWk).dtype).block_size > 1;
  return quantised ? KvType::kF16Q8 : KvType::kF32;
}

}  // namespace

Engine::Engine(const EngineOptions& options)
    : pool_(options.threads),
      progress_(options.progress),
      file_(OpenModel(options.model)),
      kv_type_(options.kv_type.value_or(StandardKvType(*file_))) {
  weights_ = LoadWeights(*file_, pool_, [&](uint64_t done, uint64_t total) {
    if (progress_) {
      progress_("loading", static_cast<double>(done) / static_cast<double>(total));
    }
  });
  try {
    tokenizer_ = file_->gguf() != nullptr ? Tokenizer::FromGguf(*file_->gguf())
                                          : Tokenizer::FromFolder(file_->path());
  } catch (const Error& error) {
    // Raw token ids still work; tokenizer() reports why text does not.
    no_tokenizer_ = error.what();
  }
  vocabulary_.mask_id = config().mask_id;
  vocabulary_.num_tokens = config().vocab_rows;
  if (tokenizer_) {
    vocabulary_.num_tokens = std::min(config().vocab_rows, tokenizer_->vocab_size());
    vocabulary_.stop_ids = StopIds(*tokenizer_);
    std::vector<uint8_t> spaced(config().vocab_rows, 0);
    for (size_t id = 0; id < vocabulary_.num_tokens; ++id) {
      spaced[id] = tokenizer_->TokenBytes(static_cast<TokenId>(id)).starts_with(' ') ? 1 : 0;
    }
    spaced_ = std::make_shared<const std::vector<uint8_t>>(std::move(spaced));
  }
  for (const TokenId id : config().stop_ids) {
    if (std::ranges::find(vocabulary_.stop_ids, id) == vocabulary_.stop_ids.end()) {
      vocabulary_.stop_ids.push_back(id);
    }
  }
  std::erase_if(vocabulary_.stop_ids,
                [&](TokenId id) { return static_cast<size_t>(id) >= config().vocab_rows; });
  vocabulary_.fill_id = config().eos_id.value_or(config().pad_id.value_or(0));
  transformer_ = std::make_unique<Transformer>(config(), weights_, pool_);
}

Engine::~Engine() { KeepStateMemory(0); }

const Tokenizer& Engine::tokenizer() const {
  if (!tokenizer_) throw Error("{}", no_tokenizer_);
  return *tokenizer_;
}

DecodeOptions Engine::DefaultDecodeOptions() const {
  using Published = DecodeDefaults;
  const Published& published = config().decode;
  DecodeOptions options;
  switch (published.schedule) {
    case Published::Schedule::kEvenSplit:
      options.schedule = Schedule::kEvenSplit;
      break;
    case Published::Schedule::kEvenSplitBlock:
      options.schedule = Schedule::kEvenSplitBlock;
      break;
    case Published::Schedule::kLinear:
      options.schedule = Schedule::kLinear;
      break;
    case Published::Schedule::kTimeGrid:
      options.schedule = Schedule::kTimeGrid;
      break;
    case Published::Schedule::kEntropyKept:
      options.schedule = Schedule::kEntropyKept;
      break;
    case Published::Schedule::kThreshold:
      options.schedule = Schedule::kNone;
      break;
  }
  if (published.order == Published::Order::kEntropy) options.order = Order::kEntropy;
  if (published.draw == Published::Draw::kFiltered) options.draw = Draw::kFiltered;
  options.temperature = published.temperature;
  options.top_p = published.top_p;
  options.threshold = published.threshold;
  options.first_threshold = published.first_threshold;
  options.edit_threshold = published.edit_threshold;
  options.max_post_steps = published.max_post_steps;
  options.gen_length = options.steps = published.gen_length;
  options.block_length = published.block_length == 0
                             ? options.gen_length
                             : std::min(published.block_length, options.gen_length);
  options.sub_block_length = published.sub_block_length;
  options.steps_per_block = published.steps_per_block;
  options.noise = published.noise;
  options.first_temperature = published.first_temperature;
  options.entropy_bound = published.entropy_bound;
  options.stable_entropy = published.stable_entropy;
  options.block_attention = config().attention.kind != AttentionKind::kFull;
  options.blocks_from_start =
      options.block_attention && config().attention.origin == BlockOrigin::kStart;
  options.seed_blocks = published.block_seeds_next;
  return options;
}

std::string Engine::DefaultCache() const {
  return config().attention.kind != AttentionKind::kFull ? "block" : "spa";
}

std::vector<TokenId> Engine::Encode(const Prompt& prompt) const {
  if (prompt.messages.empty()) return tokenizer().EncodeWithSpecial(prompt.text);
  return EncodeChat(tokenizer(), ChooseChatFormat(tokenizer(), config().chat), prompt.messages);
}

PolicyContext Engine::policy_context() {
  return {.file = file_.get(), .weights = &weights_, .pool = &pool_, .progress = progress_};
}

SharedCache Engine::PrepareCache(const CacheSpec& spec, const Preparation& how) {
  // LLaDA-8B has 128 times as many, which takes a minute or two.
  constexpr size_t kQuickProxyWeights = 4 << 20;
  PolicyContext context = policy_context();
  if (how.quick) context.max_proxy_weights = kQuickProxyWeights;
  auto cache = std::make_shared<const PreparedCache>(spa::PrepareCache(spec, context));
  file_->CheckUnchanged();
  if (how.warm && !cache->make()->keeps().warm_start) {
    throw Error("the cache {} cannot start warm: use --cache spa, or leave --warm out", spec.name);
  }
  return cache;
}

void Engine::CheckIds(std::span<const TokenId> ids) const {
  if (ids.empty()) throw Error("the prompt is empty");
  for (const TokenId id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= config().vocab_rows) {
      throw Error("the token id {} is outside the vocabulary of {} tokens", id,
                  config().vocab_rows);
    }
  }
}

std::unique_ptr<Generation> Engine::Start(std::vector<TokenId> prompt, const DecodeOptions& options,
                                          const PreparedCache& cache, Generation* warm_from,
                                          Given given) {
  ValidateDecodeOptions(options);
  CheckIds(prompt);
  const size_t before = prompt.size() + given.suffix.size();
  const size_t canvas = MaxCanvas(options) + options.grow.value_or(0);
  if (before > config().context_length || canvas > config().context_length - before) {
    throw Error("the prompt has {} tokens and the answer {}, but the model's context is {} tokens",
                before, canvas, config().context_length);
  }
  if (!given.empty() && options.block_attention) {
    throw Error(
        "this model decodes block by block and cannot see what follows a gap: infilling needs a "
        "model with full attention");
  }
  if (given.empty() && options.grow) {
    throw Error("--grow is for a text with gaps: give one, or leave --grow out");
  }
  if (!given.empty() &&
      (options.window || options.slide != Slide::kOff || options.grow_to > 0 || Revokes(options))) {
    throw Error(
        "a text with gaps cannot be combined with a window, a sliding block, wino, saber or "
        "--grow-to");
  }
  const PolicyFactory make =
      options.exact ? [] { return std::make_unique<NonePolicy>(); } : cache.make;
  DecodeVocabulary vocabulary = vocabulary_;
  if (!given.empty()) {
    SPA_CHECK(given.canvas.ids.size() == options.gen_length);
    CheckIds(given.canvas.ids);
    vocabulary.spaced = spaced_;
    if (!given.suffix.empty()) CheckIds(given.suffix);
    // A gap keeps its length, unless the model may change it.
    vocabulary.never = vocabulary.stop_ids;
    if (options.grow) {
      SPA_CHECK(config().expand_id && config().eos_id);
      vocabulary.expand_id = *config().expand_id;
      vocabulary.delete_id = *config().eos_id;
      std::erase(vocabulary.never, vocabulary.delete_id);
    }
  }
  if (config().expand_id && !options.grow) vocabulary.never.push_back(*config().expand_id);
  if (config().decode.pad_after_canvas && given.suffix.empty()) {
    given.suffix.push_back(config().pad_id.value_or(0));
  }
  auto generation =
      std::make_unique<Generation>(config(), std::move(prompt), options, vocabulary, kv_type_, make,
                                   std::move(given.suffix), std::move(given.canvas));
  if (generation->state().keeps().needs_block_attention && !options.block_attention) {
    throw Error(
        "the cache {} is for models with block attention: use another, or "
        "--block-attention on if the model was trained so",
        cache.spec.name);
  }
  const Keeps& keeps = generation->state().keeps();
  if (config().attention.kind == AttentionKind::kCausal &&
      (keeps.reuse != Reuse::kNothing || keeps.attention || keeps.inputs ||
       keeps.kv != keeps.needs_block_attention)) {
    throw Error("the cache {} does not work with this model: use block, which is exact, or none",
                cache.spec.name);
  }
  generation->times().cache = options.exact ? "none" : cache.description;
  // Keep as much freed memory as the largest sequence so far needs, for the next one.
  const MemoryNeed need = NeedOf(*this, generation->decoder().prompt_length(), options, cache);
  KeepStateMemory(std::max(StateMemoryLimit(), need.state));
  if (warm_from != nullptr) AdoptPrefix(*warm_from, *generation);
  return generation;
}

void Engine::AdoptPrefix(Generation& from, Generation& to) {
  const auto prompt = to.decoder().ids().first(to.decoder().prompt_length());
  const auto differs = std::ranges::mismatch(prompt, from.decoder().ids()).in1;
  const auto common = static_cast<size_t>(differs - prompt.begin());
  if (common == 0) return;
  if (from.times().cache != to.times().cache) {
    throw Error("a generation can start warm only from one with the same cache");
  }
  if (!from.state().HasRun(common)) {
    throw Error("a generation can start warm only from one that has computed what they share");
  }
  for (size_t i = 0; i < to.num_states(); ++i) {
    if (i >= from.num_states() || !to.state(i).AdoptPrefix(from.state(i), common, pool_)) {
      throw Error("a generation can start warm only from one with the same cache");
    }
  }
}

void Engine::DenseLogits(std::span<const TokenId> ids, const OnLogits& on_logits,
                         const DensePass& pass) {
  CheckIds(ids);
  if (ids.size() > config().context_length) {
    throw Error("{} tokens exceed the model's context of {}", ids.size(), config().context_length);
  }
  SequenceState state(config(), ids.size(), 0, kv_type_, std::make_unique<NonePolicy>());
  if (pass.attention) state.set_attention(*pass.attention);
  const std::vector<uint8_t> masked(ids.size(), 0);
  const bool causal = state.attention().kind == AttentionKind::kCausal;
  SequenceStep step{&state,
                    {.ids = ids,
                     .masked = masked,
                     .prompt_length = pass.prompt_length,
                     .block_begin = causal ? pass.prompt_length : ids.size(),
                     .block_end = ids.size(),
                     .visible = RowSet::All(ids.size()),
                     .wanted = RowSet::All(ids.size()),
                     .expected = pass.expected}};
  transformer_->Step(
      {&step, 1}, [&](size_t, uint32_t row, std::span<float> logits) { on_logits(row, logits); });
  file_->CheckUnchanged();
}

std::vector<TokenId> CanvasIds(const Decoder& decoder) {
  return {decoder.canvas().begin(), decoder.canvas().end()};
}

std::string AnswerText(const Engine& engine, const Decoder& decoder) {
  if (!engine.has_tokenizer()) return {};
  const auto answer = decoder.canvas();
  std::vector<TokenId> ids;
  for (size_t i = 0; i < answer.size(); ++i) {
    if (std::ranges::find(engine.vocabulary().stop_ids, answer[i]) !=
        engine.vocabulary().stop_ids.end()) {
      break;
    }
    ids.push_back(answer[i]);
  }
  return engine.tokenizer().Decode(ids);
}

size_t PeakMemoryBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

}  // namespace spa
