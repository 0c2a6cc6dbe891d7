// The one loop that runs generations: add requests, step them all together, take those that have
// finished. Commands, evaluations and the server use it. Not thread-safe. Generations do not see
// each other, so an answer does not depend on the others.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/prefix_store.h"

namespace spa {

struct GenerationRequest {
  std::vector<TokenId> prompt;
  DecodeOptions decode;
  SharedCache cache;
  // Start from the states of another generation under the same cache (SequenceState::AdoptPrefix).
  Generation* warm_from = nullptr;
  // Start from what this store, or a running generation, has computed of the prompt: exact.
  PrefixStore* prefixes = nullptr;
  Given given = {};  // a text with gaps
};

class Runner {
 public:
  // The engine must outlive the runner.
  explicit Runner(Engine& engine) : engine_(engine) {}

  // Starts a generation, which joins at the next step. Throws Error if the request cannot be
  // run (Engine::Start).
  Generation& Add(GenerationRequest request);

  // One forward pass for all running generations.
  void Step();
  // Removes a generation before it is done.
  std::unique_ptr<Generation> Remove(Generation& generation);
  // Those that are done, in the order they were added.
  std::vector<std::unique_ptr<Generation>> TakeFinished();

  bool empty() const { return running_.empty(); }
  size_t size() const { return running_.size(); }
  std::span<const std::unique_ptr<Generation>> running() const { return running_; }

 private:
  Engine& engine_;
  std::vector<std::unique_ptr<Generation>> running_;
};

// Called before every step of every runner; an exception from it ends that run. Embedding programs
// check for Ctrl-C there.
void SetBeforeStep(std::function<void()> call);

// One request, alone, to its end. `on_step` is called after every step.
std::unique_ptr<Generation> RunAlone(Engine& engine, GenerationRequest request,
                                     const std::function<void(Generation&)>& on_step = {});

// Many requests, up to `batch` together: when one ends, the next takes its place. `make`
// returns the request of an index; `on_finished` gets its finished generation.
void RunAll(Engine& engine, size_t count, size_t batch,
            const std::function<GenerationRequest(size_t index)>& make,
            const std::function<void(size_t index, Generation& generation)>& on_finished);

}  // namespace spa
