// A loaded model and plain greedy generation for tests that need real numbers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "decode/generation.h"
#include "model/model_file.h"
#include "model/weights.h"
#include "policies/registry.h"
#include "transformer/transformer.h"

namespace spa {

struct TestModel {
  explicit TestModel(const std::string& path, size_t threads = 2)
      : pool(threads),
        file(ModelFile::Open(path)),
        weights(LoadWeights(file, pool)),
        transformer(file.config(), weights, pool) {}

  PolicyFactory Policy(const std::string& name, const std::vector<std::string>& options = {}) {
    CacheSpec spec{.name = name, .options = {}};
    for (const std::string& option : options) AddOption(spec, option);
    return PrepareCache(spec, {.file = &file, .weights = &weights, .pool = &pool, .progress = {}})
        .make;
  }

  std::unique_ptr<Generation> Start(const std::vector<TokenId>& prompt,
                                    const DecodeOptions& options, const PolicyFactory& policy) {
    DecodeVocabulary vocabulary{.mask_id = file.config().mask_id,
                                .fill_id = file.config().eos_id.value_or(0),
                                .stop_ids = {},
                                .num_tokens = file.config().vocab_rows};
    return std::make_unique<Generation>(file.config(), prompt, options, vocabulary, KvType::kF32,
                                        policy);
  }

  static std::vector<TokenId> Answer(const Generation& generation) {
    const Decoder& decoder = generation.decoder();
    return {decoder.ids().begin() + static_cast<ptrdiff_t>(decoder.prompt_length()),
            decoder.ids().end()};
  }

  std::vector<TokenId> Generate(const std::vector<TokenId>& prompt, const DecodeOptions& options,
                                const PolicyFactory& policy) {
    const auto generation = Start(prompt, options, policy);
    Generation* one = generation.get();
    while (!generation->done()) StepTogether(transformer, {&one, 1});
    return Answer(*generation);
  }

  // Steps all of them together until they are done.
  void Finish(const std::vector<std::unique_ptr<Generation>>& generations) {
    while (true) {
      std::vector<Generation*> running;
      for (const auto& generation : generations) {
        if (!generation->done()) running.push_back(generation.get());
      }
      if (running.empty()) return;
      StepTogether(transformer, running);
    }
  }

  ThreadPool pool;
  ModelFile file;
  Weights weights;
  Transformer transformer;
};

inline DecodeOptions Greedy(size_t gen_length, size_t block_length) {
  DecodeOptions options;
  options.gen_length = options.steps = gen_length;
  options.block_length = block_length;
  options.stop = Stop::kNever;
  return options;
}

}  // namespace spa
