#include "engine/decode_choices.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace spa {
namespace {

// LLaDA and Dream call the same thing by different names.
const std::map<std::string, Order> kOrders = {
    {"low_confidence", Order::kProbability}, {"maskgit_plus", Order::kProbability},
    {"topk_margin", Order::kMargin},         {"entropy", Order::kEntropy},
    {"random", Order::kRandom},              {"origin", Order::kRandom},
    {"leftmost", Order::kLeftmost},
};
const std::map<std::string, EosRule> kEosRules = {
    {"free", EosRule::kFree}, {"never", EosRule::kLogits}, {"last", EosRule::kConfidence}};

template <typename T>
std::vector<std::string> Keys(const std::map<std::string, T>& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

template <typename T>
T ByName(const std::map<std::string, T>& map, const std::string& what, const std::string& name) {
  const auto found = map.find(name);
  if (found != map.end()) return found->second;
  throw Error("there is no {} '{}': choose from {}", what, name, fmt::join(Keys(map), ", "));
}

// The largest block up to the usual one that divides the length. Much smaller ones would decode from
// left to right, a larger one is another way to decode.
size_t BlockOf(size_t length, size_t usual) {
  if (length <= usual) return length;
  for (size_t block = usual; 2 * block >= usual; --block) {
    if (length % block == 0) return block;
  }
  throw Error("a length of {} cannot be cut into blocks of about {}: take {}, or give --block-length",
              length, usual, (length + usual - 1) / usual * usual);
}

}  // namespace

DecodeOptions DecodeChoices::Resolve(const Engine& engine) const {
  DecodeOptions options = engine.DefaultDecodeOptions();
  const bool blocks = options.block_length < options.gen_length;
  options.gen_length = gen_length.value_or(options.gen_length);
  options.block_length = block_length.value_or(
      blocks ? BlockOf(options.gen_length, options.block_length) : options.gen_length);
  options.steps = steps.value_or(options.gen_length);
  if (order) options.order = ByName(kOrders, "remasking", *order);
  options.temperature = temperature.value_or(options.temperature);
  options.top_p = top_p.value_or(options.top_p);
  options.top_k = top_k.value_or(options.top_k);
  if ((options.top_p != 1.0 || options.top_k != 0) && options.draw == Draw::kGumbel) {
    throw Error("top-p and top-k belong to Dream's sampler; LLaDA has the temperature alone");
  }
  options.order_temperature = order_temperature.value_or(options.order_temperature);
  options.eps = eps.value_or(options.eps);
  options.cfg_scale = cfg_scale.value_or(options.cfg_scale);
  options.threshold = threshold;
  options.factor = factor;
  if (eos_rule) options.eos_rule = ByName(kEosRules, "rule for end tokens", *eos_rule);
  options.early_stop = early_stop.value_or(options.early_stop);
  options.seed = seed.value_or(options.seed);
  ValidateDecodeOptions(options);
  return options;
}

std::vector<std::string> OrderNames() { return Keys(kOrders); }

std::vector<std::string> EosRuleNames() { return Keys(kEosRules); }

std::string DefaultOrderName(const Engine& engine) {
  return engine.DefaultDecodeOptions().order == Order::kEntropy ? "entropy" : "low_confidence";
}

}  // namespace spa
