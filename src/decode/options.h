// How a canvas of masks becomes text: the settings of the families' reference decoders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/token.h"

namespace spa {

// How many positions a step settles.
enum class Schedule {
  kEvenSplit,       // LLaDA: each block's masks are spread evenly over its steps, remainder first
  kEvenSplitBlock,  // SDAR, LLaDA2: the same with the block's length, even if fewer are masked
  kLinear,          // A2D: the linear schedule of its samplers, in float32
  kTimeGrid,        // Dream: t goes from 1 to eps in equal strides; a step settles its share
  kEntropyKept,     // RND1: the share still open falls linearly over the whole canvas
  kNone,            // Fast-dLLM v2: the threshold decides, at least one
};

// When to stop before the canvas is full.
enum class Stop {
  kAnswer,  // as soon as an end token is settled with everything before it
  kBlock,   // after the block that holds one
  kNever,
};

// Which positions are settled first.
enum class Order {
  kProbability,  // of the chosen token: LLaDA's low_confidence, Dream's maskgit_plus
  kMargin,       // first minus second probability: Dream's topk_margin
  kEntropy,      // least entropy first: Dream's entropy
  kRandom,       // LLaDA's random, and with the time grid Dream's origin
  kLeftmost,     // for cross-checks with programs that settle from the left
};

// How a position's token is chosen from its logits.
enum class Draw {
  kGumbel,    // LLaDA: Gumbel noise at `temperature`; the score uses the clean distribution
  kFiltered,  // Dream: temperature, then top_p, then top_k; the score uses what is left
};

// How the block moves.
enum class Slide {
  kOff,     // to the next block when it is full
  kGreedy,  // starts at the first open position, holds block_length open ones
  kConst,   // likewise, but never longer than a block
};

enum class EosRule {
  kFree,
  kLogits,      // the end-of-text token is never chosen
  kConfidence,  // end-of-text and end-of-turn are settled last
};

struct DecodeOptions {
  size_t gen_length = 128;
  size_t grow_to = 0;  // DAEDAL: the canvas may grow to this length; 0: off
  size_t block_length = 32;
  size_t steps = 128;           // forward passes planned, shared by the blocks
  size_t steps_per_block = 0;   // overrides `steps` if given
  size_t sub_block_length = 0;  // only this part of a block is decoded at a time; 0: all of it
  // Block diffusion: a row sees no block after its own; later blocks are hidden until they are
  // reached.
  bool block_attention = false;
  bool blocks_from_start = false;  // blocks are counted from position 0; the first holds the
                                   // prompt's tail
  Slide slide = Slide::kOff;       // DSB: the block moves with what is settled
  // Suffix window: only this many masks after the block are visible, and the canvas's last row.
  std::optional<size_t> window;
  // DPad: of these, the one at distance d stays with probability
  // scale / sqrt(2 pi) exp(-(sigma d / (window - 1))^2 / 2). 0: all stay.
  double window_scale = 0.0;
  double window_sigma = 4.0;
  bool seed_blocks = false;  // the last row of a full block gives the next one's first token
  Schedule schedule = Schedule::kEvenSplit;
  Order order = Order::kProbability;
  Draw draw = Draw::kGumbel;
  double temperature = 0.0;             // 0: the most likely token
  double top_p = 1.0;                   // kFiltered
  size_t top_k = 0;                     // kFiltered; 0: off
  double order_temperature = 0.0;       // Dream's alg_temp: positions drawn, not ranked
  double eps = 1e-3;                    // kTimeGrid
  double cfg_scale = 0.0;               // classifier-free guidance; doubles the work
  std::optional<double> threshold;      // parallel decoding: settle all at least this probable
  std::optional<double> factor;         // parallel decoding: Fast-dLLM's factor rule
  std::optional<double> entropy_bound;  // settle while the others' entropies sum to this
  std::optional<double> hierarchical;   // settle the surest of every run of masks above this
  std::optional<double> klass;          // settle what is sure and moved less than this
  // The first step computes every row anyway: a token that is at least this probable in it,
  // anywhere in the canvas, is settled without another look as soon as everything before it is. No
  // end token.
  std::optional<double> first_threshold;
  double loosen = 0.0;  // how far the threshold falls as the block fills
  double credit = 0.0;  // CreditDecoding: weight of earlier wins
  double credit_decay = 0.8;
  double credit_power = 0.2;
  std::optional<double> wino;  // reopen a token less probable than this when hidden
  size_t saber = 0;            // settle at least this many, reopen what lost confidence; 0: off
  bool prophet = false;        // settle the rest of the block once its best tokens are far ahead
  std::optional<double> edit_threshold;  // rewrite settled tokens of the block (LLaDA2.1)
  size_t max_post_steps = 16;            // passes over a full block that may still edit it
  // Infilling with a model that changes a gap's length (DreamOn): how many tokens longer than given
  // the canvas may get. Nothing: its length is fixed.
  std::optional<size_t> grow;
  // The canvas begins with random tokens. A step draws every token of the block at a temperature
  // that falls from the first one to `temperature`, accepts the surest (entropy_bound) and puts
  // random tokens in place of the others; the block becomes the likeliest tokens of its last step
  // (DiffusionGemma).
  bool noise = false;
  double first_temperature = 0.0;
  double stable_entropy = 0.0;  // a block is done once its likeliest tokens stay the same for
  size_t stable_steps = 1;      // so many steps, with less than this entropy in the mean
  EosRule eos_rule = EosRule::kFree;
  Stop stop = Stop::kAnswer;
  bool exact = false;  // one token per step without a cache, whatever else is the default
  uint64_t seed = 0;
};

// What the decoder needs to know about the vocabulary.
struct DecodeVocabulary {
  TokenId mask_id = 0;
  TokenId fill_id = 0;              // fills the canvas after the end
  std::vector<TokenId> stop_ids;    // end of text, end of turn
  size_t num_tokens = 0;            // ids from here on are padding and never chosen
  std::vector<TokenId> never = {};  // never chosen either
  // By id: whether a token's text begins with a space.
  std::shared_ptr<const std::vector<uint8_t>> spaced = {};
  TokenId expand_id = -1;  // DecodeOptions::grow: becomes two masks when it is written,
  TokenId delete_id = -1;  // removed again, with the masks after it
};

// What decides how many positions a step settles.
enum class Rule {
  kSchedule,
  kThreshold,
  kFactor,
  kEntropyBound,
  kHierarchical,
  kKlass,
  kWino,
  kSaber,
};
Rule RuleOf(const DecodeOptions& options);
// Whether settled positions of the block may open again.
bool Revokes(const DecodeOptions& options);
// The longest the canvas can become.
size_t MaxCanvas(const DecodeOptions& options);
// The threshold of the rule: as given, or else its authors' value.
double ThresholdOf(const DecodeOptions& options);

// Throws Error saying what cannot be combined.
void ValidateDecodeOptions(const DecodeOptions& options);

}  // namespace spa
