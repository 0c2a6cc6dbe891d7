// The engine as a program uses it: load a model, encode prompts, start generations. This folder
// wires the ones below together; commands, library and server build on it.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "decode/generation.h"
#include "engine/embedded.h"
#include "model/model_file.h"
#include "model/weights.h"
#include "policies/registry.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "transformer/transformer.h"

namespace spa {

struct EngineOptions {
  std::filesystem::path model;  // GGUF file or Hugging Face folder; empty: the embedded model
  size_t threads = 0;           // 0: one per core
  // By default 16 bits if the weights have 8 or fewer: products round their rows to 8 bits anyway.
  std::optional<KvType> kv_type;
  Progress progress;
};

struct Prompt {
  std::vector<ChatMessage> messages;  // wrapped in the model's chat template
  std::string text;                   // used as is when there are no messages
};

// The given parts of a text with gaps, after its beginning (made by infill.h).
struct Given {
  GivenCanvas canvas;           // from the first gap to the last; empty: all of it is open
  std::vector<TokenId> suffix;  // what follows

  bool empty() const { return canvas.ids.empty(); }
};

// Caches are prepared once and used by any number of generations.
using SharedCache = std::shared_ptr<const PreparedCache>;

class Engine {
 public:
  explicit Engine(const EngineOptions& options);
  ~Engine();

  const ModelFile& file() const { return *file_; }
  const ModelConfig& config() const { return file_->config(); }
  const Weights& weights() const { return weights_; }
  Transformer& transformer() { return *transformer_; }
  ThreadPool& pool() { return pool_; }
  KvType kv_type() const { return kv_type_; }
  bool has_tokenizer() const { return tokenizer_.has_value(); }
  // Throws Error if the model's files carry none.
  const Tokenizer& tokenizer() const;

  void set_progress(Progress progress) { progress_ = std::move(progress); }

  // How the makers decode this model.
  DecodeOptions DefaultDecodeOptions() const;
  // The default cache: the exact one for block diffusion, else SPA-Cache.
  std::string DefaultCache() const;
  const DecodeVocabulary& vocabulary() const { return vocabulary_; }
  std::vector<TokenId> Encode(const Prompt& prompt) const;
  // Throws Error if there are no ids or some are outside the vocabulary.
  void CheckIds(std::span<const TokenId> ids) const;

  // Prepares what a cache needs. Proxies may be computed here, once per model and rank.
  struct Preparation {
    bool warm = false;   // Error if it cannot start warm
    bool quick = false;  // Error if it would take longer than a second or so
  };
  SharedCache PrepareCache(const CacheSpec& spec) { return PrepareCache(spec, {}); }
  SharedCache PrepareCache(const CacheSpec& spec, const Preparation& how);
  // What a policy may need from the model; progress is reported to the engine's callback.
  PolicyContext policy_context();

  // Throws Error if the prompt is empty, holds ids outside the vocabulary or does not fit the
  // context with the canvas. A warm start copies the states of the common prefix from another
  // generation with the same cache (SequenceState::AdoptPrefix); Error if the cache cannot.
  // With `given` it fills gaps (infill.h); Error if the model cannot see what follows a gap.
  // runner.h runs what this starts.
  std::unique_ptr<Generation> Start(std::vector<TokenId> prompt, const DecodeOptions& options,
                                    const PreparedCache& cache, Generation* warm_from = nullptr,
                                    Given given = {});

  // Logits of one dense pass over `ids`, row by row, not shifted.
  using OnLogits = std::function<void(size_t row, std::span<const float> logits)>;
  struct DensePass {
    std::optional<AttentionPattern> attention;  // nullopt: the model's
    size_t prompt_length = 0;                   // for blocks that count from the prompt's end
    MatView<const float> expected = {};         // StepInput::expected of the rows after the prompt
  };
  void DenseLogits(std::span<const TokenId> ids, const OnLogits& on_logits) {
    DenseLogits(ids, on_logits, {});
  }
  void DenseLogits(std::span<const TokenId> ids, const OnLogits& on_logits, const DensePass& pass);

 private:
  void AdoptPrefix(Generation& from, Generation& to);

  ThreadPool pool_;
  Progress progress_;
  std::unique_ptr<ModelFile> file_;
  KvType kv_type_;
  Weights weights_;
  std::optional<Tokenizer> tokenizer_;
  std::string no_tokenizer_;  // why there is none
  DecodeVocabulary vocabulary_;
  std::shared_ptr<const std::vector<uint8_t>> spaced_;  // DecodeVocabulary::spaced
  std::unique_ptr<Transformer> transformer_;
};

// Text of a canvas up to its first stop token; empty if the model has no tokenizer.
std::string AnswerText(const Engine& engine, const Decoder& decoder);
// The whole canvas.
std::vector<TokenId> CanvasIds(const Decoder& decoder);

size_t PeakMemoryBytes();

}  // namespace spa
