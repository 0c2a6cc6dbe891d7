#include "decode/options.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace spa {

Rule RuleOf(const DecodeOptions& o) {
  if (o.wino) return Rule::kWino;
  if (o.saber > 0) return Rule::kSaber;
  if (o.hierarchical) return Rule::kHierarchical;
  if (o.klass) return Rule::kKlass;
  if (o.factor) return Rule::kFactor;
  if (o.entropy_bound) return Rule::kEntropyBound;
  return o.threshold ? Rule::kThreshold : Rule::kSchedule;
}

double ThresholdOf(const DecodeOptions& o) { return o.threshold.value_or(o.wino ? 0.6 : 0.9); }

bool Revokes(const DecodeOptions& o) { return o.wino || o.saber > 0; }

size_t MaxCanvas(const DecodeOptions& o) { return std::max(o.gen_length, o.grow_to); }

void ValidateDecodeOptions(const DecodeOptions& o) {
  if (o.gen_length < 1) throw Error("the generation length must be at least 1");
  if (o.block_length < 1) throw Error("the block length must be at least 1");
  const bool slides = o.slide != Slide::kOff;
  const bool whole_blocks = o.schedule == Schedule::kEvenSplit || o.schedule == Schedule::kTimeGrid;
  if (slides && (o.block_attention || o.sub_block_length > 0 || o.seed_blocks)) {
    throw Error("a model trained with fixed blocks cannot use a sliding block");
  }
  if (!slides && whole_blocks && o.gen_length % o.block_length != 0) {
    throw Error("the generation length {} is not a multiple of the block length {}", o.gen_length,
                o.block_length);
  }
  const size_t blocks = slides ? 1 : (o.gen_length + o.block_length - 1) / o.block_length;
  if (o.steps_per_block == 0 && (o.steps < blocks || (whole_blocks && o.steps % blocks != 0))) {
    throw Error("{} steps cannot be shared by {} blocks: give a multiple of {}", o.steps, blocks,
                blocks);
  }
  const auto finite = [](double value, double least, double most, const char* name) {
    if (!std::isfinite(value) || value < least || value > most) {
      throw Error("{} is {}: it must lie between {} and {}", name, value, least, most);
    }
  };
  finite(o.temperature, 0.0, 100.0, "temperature");
  finite(o.top_p, 1e-6, 1.0, "top_p");
  finite(o.order_temperature, 0.0, 100.0, "the order temperature");
  finite(o.eps, 1e-9, 0.5, "eps");
  finite(o.cfg_scale, 0.0, 100.0, "the guidance scale");
  if (o.threshold) finite(*o.threshold, 0.0, 2.0, "threshold");
  if (o.first_threshold) {
    finite(*o.first_threshold, 0.0, 1.0, "the first threshold");
    if (o.block_attention || o.noise) {
      throw Error("the first threshold needs a model that sees the whole canvas");
    }
    if (Revokes(o) || o.grow_to > 0) {
      throw Error("the first threshold cannot be combined with wino, saber or grow-to");
    }
  }
  if (o.factor) finite(*o.factor, 1e-6, 1e6, "factor");
  if (o.entropy_bound) finite(*o.entropy_bound, 0.0, 1e6, "the entropy bound");
  if (o.edit_threshold) finite(*o.edit_threshold, 0.0, 1.0, "the edit threshold");
  finite(o.window_scale, 0.0, 100.0, "the window's scale");
  finite(o.window_sigma, 0.0, 100.0, "the window's sigma");
  if (o.window_scale > 0.0 && !o.window) throw Error("a window scale needs a window");
  if (o.hierarchical) finite(*o.hierarchical, 0.0, 1.0, "hierarchical");
  if (o.klass) finite(*o.klass, 0.0, 1e6, "klass");
  finite(o.loosen, 0.0, 1.0, "loosen");
  finite(o.credit, 0.0, 100.0, "credit");
  finite(o.credit_decay, 0.0, 1.0, "the credit's decay");
  finite(o.credit_power, 0.0, 100.0, "the credit's power");
  if (o.wino) finite(*o.wino, 0.0, 1.0, "wino");
  const int with_threshold = (o.hierarchical ? 1 : 0) + (o.klass ? 1 : 0) + (o.wino ? 1 : 0);
  const int others = (o.factor ? 1 : 0) + (o.entropy_bound ? 1 : 0) + (o.saber > 0 ? 1 : 0);
  if (with_threshold + others + (o.threshold && with_threshold == 0 ? 1 : 0) > 1) {
    throw Error(
        "give only one rule: threshold, factor, entropy bound, hierarchical, klass, wino or saber "
        "(hierarchical, klass and wino may have a threshold, too)");
  }
  if (Revokes(o) && (slides || o.block_attention || o.edit_threshold || o.cfg_scale > 0.0)) {
    throw Error(
        "wino and saber cannot be combined with a sliding block, block attention, edits or "
        "guidance");
  }
  if (o.grow_to > 0) {
    if (o.grow_to < o.gen_length) {
      throw Error("a canvas of {} cannot grow to {}", o.gen_length, o.grow_to);
    }
    if (o.window || o.block_attention || slides || Revokes(o) || o.cfg_scale > 0.0) {
      throw Error(
          "a canvas that grows cannot be combined with block attention, a sliding block, wino, "
          "saber, guidance, or a window, which makes it unnecessary");
    }
  }
  if (o.loosen > 0.0 && !o.threshold && with_threshold == 0)
    throw Error("there is no threshold to loosen");
  finite(o.first_temperature, 0.0, 100.0, "the first temperature");
  finite(o.stable_entropy, 0.0, 1e6, "the stable entropy");
  if (o.noise) {
    if (!o.entropy_bound) throw Error("this model needs an entropy bound");
    if (!o.block_attention || o.blocks_from_start || o.sub_block_length > 0 || o.seed_blocks) {
      throw Error("this model decodes whole blocks, the first right after the prompt");
    }
    if (o.cfg_scale > 0.0) throw Error("this model does not support guidance");
    if (o.temperature <= 0.0)
      throw Error("this model samples its tokens: give a temperature above 0");
    if (o.steps_per_block == 0) throw Error("this model needs its steps per block");
  }
  if (o.edit_threshold && !o.threshold) throw Error("edits of settled tokens need a threshold");
  if (o.edit_threshold && o.cfg_scale > 0.0) {
    throw Error("edits of settled tokens cannot be combined with guidance");
  }
}

}  // namespace spa
