// The engine as a program uses it: load a model, make prompts, run generations. The only folder
// that knows everything; commands and the server stand on it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "decode/generation.h"
#include "model/model_file.h"
#include "model/weights.h"
#include "policies/registry.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "transformer/transformer.h"

namespace spa {

// What is being done and how much of it, in [0, 1].
using Progress = std::function<void(std::string_view what, double share)>;

struct EngineOptions {
  std::filesystem::path model;  // GGUF file or Hugging Face folder; empty: the embedded model
  size_t threads = 0;           // 0: one per core
  KvType kv_type = KvType::kF32;
  Progress progress;
};

struct Prompt {
  std::vector<ChatMessage> messages;  // wrapped in the model's chat template
  std::string text;                   // used as it is when there are no messages
};

// Everything worth telling about a finished generation.
struct GenerationReport {
  std::string text;
  std::vector<TokenId> ids;  // the whole canvas
  bool ended = false;        // by an end token, not by the canvas
  size_t prompt_tokens = 0;
  size_t generated_tokens = 0;  // of the answer, without its end token
  size_t steps = 0;
  double seconds = 0.0;
  double ttft_seconds = 0.0;  // until the first step is done
  double tokens_per_second = 0.0;
  uint64_t rows_computed = 0;
  uint64_t rows_total = 0;
  std::string cache;
  size_t cache_bytes = 0;
  size_t peak_memory_bytes = 0;
};

class Engine {
 public:
  explicit Engine(const EngineOptions& options);

  const ModelFile& file() const { return *file_; }
  const ModelConfig& config() const { return file_->config(); }
  const Weights& weights() const { return weights_; }
  Transformer& transformer() { return *transformer_; }
  ThreadPool& pool() { return pool_; }
  bool has_tokenizer() const { return tokenizer_.has_value(); }
  // Throws Error if the model's files carry none.
  const Tokenizer& tokenizer() const;

  void set_progress(Progress progress) { progress_ = std::move(progress); }

  // The published way to decode this model.
  DecodeOptions DefaultDecodeOptions() const;
  const DecodeVocabulary& vocabulary() const { return vocabulary_; }
  std::vector<TokenId> Encode(const Prompt& prompt) const;

  // Prepares what a cache needs (proxies may be computed here, once per model and option set).
  struct Preparation {
    bool warm = false;   // Error if it cannot start warm
    bool quick = false;  // Error if it would take longer than a second or so
  };
  PolicyFactory PrepareCache(const CacheSpec& spec) { return PrepareCache(spec, {}); }
  PolicyFactory PrepareCache(const CacheSpec& spec, const Preparation& how);

  // Throws Error if the prompt is empty, holds ids outside the vocabulary or does not fit the
  // context with the canvas. A warm start takes the states of what both begin with from another
  // generation under the same policy (SequenceState::AdoptPrefix); Error if the cache cannot.
  std::unique_ptr<Generation> Start(std::vector<TokenId> prompt, const DecodeOptions& options,
                                    const PolicyFactory& policy, Generation* warm_from = nullptr);

  // Runs generations to their ends, all together. `on_step` is called after every step of each.
  using OnStep = std::function<void(size_t index, Generation& generation)>;
  std::vector<GenerationReport> Run(std::span<const std::unique_ptr<Generation>> generations,
                                    const CacheSpec& cache, const OnStep& on_step = {});

  // Logits of one dense pass over `ids`, row by row, not shifted.
  using OnLogits = std::function<void(size_t row, std::span<const float> logits)>;
  void DenseLogits(std::span<const TokenId> ids, const OnLogits& on_logits);

 private:
  void CheckIds(std::span<const TokenId> ids) const;
  void AdoptPrefix(Generation& from, Generation& to);

  ThreadPool pool_;
  KvType kv_type_;
  Progress progress_;
  std::unique_ptr<ModelFile> file_;
  Weights weights_;
  std::optional<Tokenizer> tokenizer_;
  std::string no_tokenizer_;  // why there is none
  DecodeVocabulary vocabulary_;
  std::unique_ptr<Transformer> transformer_;
};

// Text of a canvas up to its first stop token.
std::string AnswerText(const Engine& engine, const Decoder& decoder);

size_t PeakMemoryBytes();

// The GGUF images compiled into the program; empty if it was built without.
std::span<const std::byte> EmbeddedModel();

}  // namespace spa
