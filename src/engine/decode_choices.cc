#include "engine/decode_choices.h"

#include <algorithm>
#include <initializer_list>

#include "base/error.h"
#include "decode/option_table.h"

namespace spa {
namespace {

// The largest block length, up to the usual one, that divides the canvas. Much smaller blocks would
// decode left to right; larger ones would be another way to decode.
size_t BlockOf(size_t length, size_t usual) {
  if (length <= usual) return length;
  for (size_t block = usual; 2 * block >= usual; --block) {
    if (length % block == 0) return block;
  }
  throw Error(
      "a length of {} cannot be cut into blocks of about {}: take {}, or give --block-length",
      length, usual, (length + usual - 1) / usual * usual);
}

}  // namespace

void DecodeChoices::Set(std::string_view name, std::string_view value) {
  std::vector<std::string> names;
  for (const DecodeOption& option : DecodeOptionTable()) {
    if (FindOption({&option.info, 1}, name) != nullptr) {
      values_[option.info.name] = ParseOption(option.info, value);
      return;
    }
    names.push_back(option.info.name);
  }
  throw Error("there is no decoding option '{}'{}: choose from {}", name, DidYouMean(name, names),
              fmt::join(names, ", "));
}

bool DecodeChoices::exact() const {
  const auto found = values_.find("exact");
  return found != values_.end() && found->second.flag();
}

DecodeOptions DecodeChoices::Resolve(const Engine& engine) const {
  DecodeOptions options = engine.DefaultDecodeOptions();
  const DecodeOptions standard = options;
  for (const DecodeOption& option : DecodeOptionTable()) {
    const auto found = values_.find(option.info.name);
    if (found != values_.end()) option.set(found->second, options);
  }
  if (options.exact) {
    for (const char* name : {"threshold", "first-threshold", "factor", "entropy-bound",
                             "hierarchical", "klass", "credit", "wino", "saber", "prophet",
                             "edit-threshold", "window", "slide", "steps", "steps-per-block"}) {
      if (has(name)) throw Error("exact decoding settles one token per step: leave out {}", name);
    }
    options.threshold.reset();
    options.first_threshold.reset();
    options.edit_threshold.reset();
    options.window.reset();
  }
  // The model's own first threshold goes with its block length and rule.
  const auto given = [&](const char* name) { return has(name); };
  if (!has("first-threshold") &&
      std::ranges::any_of(
          std::initializer_list<const char*>{"block-length", "threshold", "factor", "entropy-bound",
                                             "hierarchical", "klass", "credit", "wino", "saber",
                                             "prophet", "slide", "grow-to", "block-attention"},
          given)) {
    options.first_threshold.reset();
  }
  // Another rule replaces the model's own.
  if ((has("factor") || has("entropy-bound") || has("saber")) && !has("threshold")) {
    options.threshold.reset();
    if (!has("edit-threshold")) options.edit_threshold.reset();
  }
  // Block length and steps follow from the canvas unless given.
  if (!has("block-length")) {
    const bool blocks = standard.block_length < standard.gen_length;
    if (!blocks) {
      options.block_length = options.gen_length;
    } else if (options.slide != Slide::kOff) {
      options.block_length = std::min(options.gen_length, standard.block_length);
    } else {
      options.block_length = BlockOf(options.gen_length, standard.block_length);
    }
  }
  if (!has("steps")) options.steps = options.gen_length;
  if (options.exact) options.steps_per_block = options.block_length;
  if (options.steps > options.gen_length) {
    throw Error("{} steps are more than the {} tokens to settle", options.steps,
                options.gen_length);
  }
  if ((options.top_p != 1.0 || options.top_k != 0) && options.draw == Draw::kGumbel) {
    throw Error("top-p and top-k belong to Dream's sampler; LLaDA has only a temperature");
  }
  const auto needs = [&](const char* name, bool used, const char* what) {
    if (has(name) && !used) throw Error("{} does nothing without {}", name, what);
  };
  needs("credit-decay", options.credit > 0.0, "credit");
  needs("credit-power", options.credit > 0.0, "credit");
  needs("window-sigma", options.window_scale > 0.0, "window-scale");
  needs("max-post-steps", options.edit_threshold.has_value(), "edit-threshold");
  if (has("eps") && options.schedule != Schedule::kTimeGrid) {
    throw Error("eps belongs to Dream's time grid, which this model does not use");
  }
  ValidateDecodeOptions(options);
  return options;
}

}  // namespace spa
