#include "lab/component_times.h"

#include <algorithm>

#include "engine/runner.h"

namespace spa {

std::vector<ComponentTimes> MeasureComponents(Engine& engine,
                                              std::span<const std::vector<TokenId>> prompts,
                                              const DecodeOptions& decode,
                                              const Progress& progress) {
  const std::pair<const char*, CacheSpec> runs[] = {
      {"none", {}},
      {"spa, value", {.name = "spa", .options = {{"identifier", "value"}, {"profile", "off"}}}},
      {"spa, singular", {.name = "spa", .options = {{"profile", "off"}}}},
  };
  std::vector<ComponentTimes> times;
  std::vector<SharedCache> caches;
  for (const auto& [name, spec] : runs) {
    times.push_back({name, std::vector<double>(kPhaseNames.size())});
    caches.push_back(engine.PrepareCache(spec));
  }
  std::vector<double> steps(times.size());
  PhaseClock& clock = engine.transformer().clock();
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (size_t run = 0; run < times.size(); ++run) {
      Runner runner(engine);
      Generation& generation = runner.Add({prompts[i], decode, caches[run]});
      while (!generation.done()) {
        const bool first = generation.decoder().steps() == 0;
        clock.Reset();
        runner.Step();
        clock.Enter(Phase::kOther);
        if (first) continue;
        steps[run] += 1.0;
        for (size_t p = 0; p < kPhaseNames.size(); ++p) {
          times[run].seconds[p] += clock.seconds(static_cast<Phase>(p));
        }
      }
    }
    if (progress) {
      progress("timing steps", static_cast<double>(i + 1) / static_cast<double>(prompts.size()));
    }
  }
  for (size_t run = 0; run < times.size(); ++run) {
    for (double& seconds : times[run].seconds) seconds /= std::max(1.0, steps[run]);
  }
  return times;
}

}  // namespace spa
