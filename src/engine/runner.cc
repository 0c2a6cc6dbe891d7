#include "engine/runner.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/error.h"

namespace spa {
namespace {

using Clock = std::chrono::steady_clock;

std::function<void()> before_step;

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

void SetBeforeStep(std::function<void()> call) { before_step = std::move(call); }

Generation& Runner::Add(GenerationRequest request) {
  auto generation = engine_.Start(std::move(request.prompt), request.decode, *request.cache,
                                  request.warm_from, std::move(request.given));
  generation->begun = Clock::now();
  if (request.prefixes != nullptr) {
    request.prefixes->Adopt(*generation, running_, engine_.pool());
  }
  running_.push_back(std::move(generation));
  return *running_.back();
}

void Runner::Step() {
  if (running_.empty()) return;
  if (before_step) before_step();
  std::vector<Generation*> batch;
  for (const auto& generation : running_) {
    if (!generation->done()) batch.push_back(generation.get());
  }
  const auto start = Clock::now();
  StepTogether(engine_.transformer(), batch);
  // Embeddings are read from the file in every step.
  engine_.file().CheckUnchanged();
  const auto end = Clock::now();
  for (Generation* generation : batch) {
    GenerationStats& times = generation->times();
    times.engine_seconds += Seconds(end - start) / static_cast<double>(batch.size());
    times.seconds = Seconds(end - generation->begun);
    if (generation->decoder().steps() == 1) times.first_step_seconds = times.seconds;
  }
}

std::unique_ptr<Generation> Runner::Remove(Generation& generation) {
  const auto found = std::ranges::find(running_, &generation, &std::unique_ptr<Generation>::get);
  SPA_CHECK(found != running_.end());
  std::unique_ptr<Generation> removed = std::move(*found);
  running_.erase(found);
  return removed;
}

std::vector<std::unique_ptr<Generation>> Runner::TakeFinished() {
  std::vector<std::unique_ptr<Generation>> finished, rest;
  for (auto& generation : running_) {
    (generation->done() ? finished : rest).push_back(std::move(generation));
  }
  running_ = std::move(rest);
  return finished;
}

std::unique_ptr<Generation> RunAlone(Engine& engine, GenerationRequest request,
                                     const std::function<void(Generation&)>& on_step) {
  Runner runner(engine);
  Generation& generation = runner.Add(std::move(request));
  while (!generation.done()) {
    runner.Step();
    if (on_step) on_step(generation);
  }
  return runner.Remove(generation);
}

void RunAll(Engine& engine, size_t count, size_t batch,
            const std::function<GenerationRequest(size_t index)>& make,
            const std::function<void(size_t index, Generation& generation)>& on_finished) {
  Runner runner(engine);
  std::map<const Generation*, size_t> index_of;
  for (size_t next = 0; next < count || !runner.empty();) {
    while (runner.size() < batch && next < count) {
      index_of[&runner.Add(make(next))] = next;
      ++next;
    }
    runner.Step();
    for (const auto& generation : runner.TakeFinished()) {
      on_finished(index_of.at(generation.get()), *generation);
      index_of.erase(generation.get());
    }
  }
}

}  // namespace spa
