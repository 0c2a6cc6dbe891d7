#include "decode/options.h"

#include <cmath>

#include "base/error.h"

namespace spa {

void ValidateDecodeOptions(const DecodeOptions& o) {
  if (o.gen_length < 1) throw Error("the generation length must be at least 1");
  if (o.block_length < 1) throw Error("the block length must be at least 1");
  const bool whole_blocks = o.schedule == Schedule::kEvenSplit || o.schedule == Schedule::kTimeGrid;
  if (whole_blocks && o.gen_length % o.block_length != 0) {
    throw Error("the generation length {} is not a multiple of the block length {}", o.gen_length,
                o.block_length);
  }
  const size_t blocks = (o.gen_length + o.block_length - 1) / o.block_length;
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
  if (o.factor) finite(*o.factor, 1e-6, 1e6, "factor");
  if (o.entropy_bound) finite(*o.entropy_bound, 0.0, 1e6, "the entropy bound");
  if (o.edit_threshold) finite(*o.edit_threshold, 0.0, 1.0, "the edit threshold");
  finite(o.first_temperature, 0.0, 100.0, "the first temperature");
  finite(o.stable_entropy, 0.0, 1e6, "the stable entropy");
  if (o.noise) {
    if (!o.entropy_bound) throw Error("this model is decoded with an entropy bound");
    if (!o.block_attention || o.blocks_from_start || o.sub_block_length > 0 || o.seed_blocks) {
      throw Error("this model is decoded block by block, behind the prompt");
    }
    if (o.cfg_scale > 0.0) throw Error("this model has no guidance");
    if (o.temperature <= 0.0)
      throw Error("this model draws its tokens: the temperature is above 0");
    if (o.steps_per_block == 0) throw Error("give this model its steps per block");
  }
  const int rules = (o.threshold ? 1 : 0) + (o.factor ? 1 : 0) + (o.entropy_bound ? 1 : 0);
  if (rules > 1) throw Error("give one of threshold, factor and entropy bound, not several");
  if (o.edit_threshold && !o.threshold) throw Error("edits of settled tokens need a threshold");
  if (o.edit_threshold && o.cfg_scale > 0.0) {
    throw Error("edits of settled tokens do not go with guidance");
  }
}

}  // namespace spa
