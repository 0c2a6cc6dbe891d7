// The decoding options as somebody asked for them, by flag or by request field: what was left out
// follows from the model and from the rest. One table of names serves all front ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace spa {

struct DecodeChoices {
  std::optional<size_t> gen_length, block_length, steps, top_k;
  std::optional<double> temperature, top_p, order_temperature, eps, cfg_scale, threshold, factor;
  std::optional<std::string> order, eos_rule;
  std::optional<uint64_t> seed;
  std::optional<bool> early_stop;

  // The model's defaults with what was chosen. Throws Error if it does not go together.
  DecodeOptions Resolve(const Engine& engine) const;
};

// What DecodeChoices::order and ::eos_rule may be.
std::vector<std::string> OrderNames();
std::vector<std::string> EosRuleNames();
// The published name of the order this model is decoded in by default.
std::string DefaultOrderName(const Engine& engine);

}  // namespace spa
