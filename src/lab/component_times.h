// Time per phase of a step, with and without SPA-Cache.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace spa {

// Seconds per step and phase (kPhaseNames), steps after the first, averaged.
struct ComponentTimes {
  std::string name;
  std::vector<double> seconds;
};
// No cache, SPA-Cache by values, SPA-Cache by singular proxies.
std::vector<ComponentTimes> MeasureComponents(Engine& engine,
                                              std::span<const std::vector<TokenId>> prompts,
                                              const DecodeOptions& decode,
                                              const Progress& progress = {});

}  // namespace spa
