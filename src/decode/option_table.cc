#include "decode/option_table.h"

#include <fmt/format.h>

#include <utility>

namespace spa {
namespace {

// LLaDA and Dream call the same order by different names; the first name of each is ours.
constexpr std::pair<const char*, Order> kOrders[] = {
    {"low_confidence", Order::kProbability},
    {"maskgit_plus", Order::kProbability},
    {"topk_margin", Order::kMargin},
    {"entropy", Order::kEntropy},
    {"random", Order::kRandom},
    {"origin", Order::kRandom},
    {"leftmost", Order::kLeftmost},
};
constexpr std::pair<const char*, EosRule> kEosRules[] = {
    {"free", EosRule::kFree}, {"never", EosRule::kLogits}, {"last", EosRule::kConfidence}};

constexpr std::pair<const char*, Stop> kStops[] = {
    {"on", Stop::kAnswer}, {"block", Stop::kBlock}, {"off", Stop::kNever}};
constexpr std::pair<const char*, Slide> kSlides[] = {
    {"off", Slide::kOff}, {"greedy", Slide::kGreedy}, {"const", Slide::kConst}};
constexpr std::pair<const char*, Schedule> kSchedules[] = {
    {"even-split", Schedule::kEvenSplit},
    {"even-split-block", Schedule::kEvenSplitBlock},
    {"linear", Schedule::kLinear},
    {"time-grid", Schedule::kTimeGrid},
    {"entropy-kept", Schedule::kEntropyKept},
    {"none", Schedule::kNone}};

template <typename T, size_t N>
std::vector<std::string> Names(const std::pair<const char*, T> (&pairs)[N]) {
  std::vector<std::string> names;
  for (const auto& [name, value] : pairs) names.emplace_back(name);
  return names;
}

template <typename T, size_t N>
std::string NameOf(const std::pair<const char*, T> (&pairs)[N], T value) {
  for (const auto& [name, other] : pairs) {
    if (other == value) return name;
  }
  return "";
}

std::string Text(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "off";
}

}  // namespace

const std::vector<DecodeOption>& DecodeOptionTable() {
  using O = DecodeOptions;
  using V = OptionValue;
  constexpr double kLong = 1 << 20;
  static const std::vector<DecodeOption> table = {
      {OptionInfo::Count("gen-length", 1, kLong, "the model's, else 128",
                         "Length of the answer's canvas"),
       [](const V& v, O& o) { o.gen_length = v.count(); },
       [](const O& o) { return fmt::format("{}", o.gen_length); }},
      {OptionInfo::Count("grow-to", 0, kLong, "0: off",
                         "Let the canvas grow up to this length until the model is sure that the "
                         "answer ends in it (DAEDAL)"),
       [](const V& v, O& o) { o.grow_to = v.count(); },
       [](const O& o) { return fmt::format("{}", o.grow_to); }},
      {OptionInfo::Count("block-length", 1, kLong,
                         "the model's, else 32 (LLaDA) or the whole canvas (Dream)",
                         "Decode in blocks of this many tokens"),
       [](const V& v, O& o) { o.block_length = v.count(); },
       [](const O& o) { return fmt::format("{}", o.block_length); }},
      {OptionInfo::Count("steps", 1, kLong, "one per token",
                         "Denoising steps, shared by the blocks"),
       [](const V& v, O& o) { o.steps = v.count(); },
       [](const O& o) { return fmt::format("{}", o.steps); }},
      {OptionInfo::Count("steps-per-block", 0, kLong, "0: from --steps",
                         "Denoising steps of each block"),
       [](const V& v, O& o) { o.steps_per_block = v.count(); },
       [](const O& o) { return fmt::format("{}", o.steps_per_block); }},
      {OptionInfo::Count("sub-block-length", 0, kLong, "0: the whole block; Fast-dLLM v2 8",
                         "Decode a block in parts of this many tokens"),
       [](const V& v, O& o) { o.sub_block_length = v.count(); },
       [](const O& o) { return fmt::format("{}", o.sub_block_length); }},
      {OptionInfo::Flag("block-attention", "by model",
                        "Block diffusion: a position sees no later block"),
       [](const V& v, O& o) { o.block_attention = v.flag(); },
       [](const O& o) { return std::string(o.block_attention ? "on" : "off"); }},
      {OptionInfo::Choice(
           "slide", Names(kSlides), "off",
           "Let the block begin at the first open position and move with every step (DSB): greedy "
           "keeps a block's length of open positions in it, const never makes it longer than a "
           "block"),
       [](const V& v, O& o) { o.slide = kSlides[v.count()].second; },
       [](const O& o) { return NameOf(kSlides, o.slide); }},
      {OptionInfo::Count("window", 0, kLong, "all",
                         "Compute only this many masks after the block, and the last of the canvas "
                         "(Streaming-dLLM)"),
       [](const V& v, O& o) { o.window = v.count(); },
       [](const O& o) { return o.window ? fmt::format("{}", *o.window) : "all"; }},
      {OptionInfo::Number("window-scale", 0, 100, "0: all of the window",
                          "Thin the window at random, more so farther away (DPad uses 2)"),
       [](const V& v, O& o) { o.window_scale = v.number; },
       [](const O& o) { return fmt::format("{}", o.window_scale); }},
      {OptionInfo::Number("window-sigma", 0, 100, "4", "How fast a thinned window fades (DPad)"),
       [](const V& v, O& o) { o.window_sigma = v.number; },
       [](const O& o) { return fmt::format("{}", o.window_sigma); }},
      {OptionInfo::Choice("remasking", Names(kOrders), "low_confidence (LLaDA), entropy (Dream)",
                          "Which positions are settled first")
           .WithAlias("alg"),
       [](const V& v, O& o) { o.order = kOrders[v.count()].second; },
       [](const O& o) { return NameOf(kOrders, o.order); }},
      {OptionInfo::Number("temperature", 0, 100, "0",
                          "Sampling temperature; 0 takes the most likely token"),
       [](const V& v, O& o) { o.temperature = v.number; },
       [](const O& o) { return fmt::format("{}", o.temperature); }},
      {OptionInfo::Number("top-p", 1e-6, 1, "1",
                          "Sample from the most likely tokens up to this probability mass (Dream)"),
       [](const V& v, O& o) { o.top_p = v.number; },
       [](const O& o) { return fmt::format("{}", o.top_p); }},
      {OptionInfo::Count("top-k", 0, 1 << 30, "0: all",
                         "Sample from the K most likely tokens (Dream)"),
       [](const V& v, O& o) { o.top_k = v.count(); },
       [](const O& o) { return fmt::format("{}", o.top_k); }},
      {OptionInfo::Number(
           "alg-temp", 0, 100, "0",
           "Draw the positions to settle at this temperature instead of ranking them (Dream)"),
       [](const V& v, O& o) { o.order_temperature = v.number; },
       [](const O& o) { return fmt::format("{}", o.order_temperature); }},
      {OptionInfo::Number("eps", 1e-9, 0.5, "0.001", "End of the time grid (Dream)"),
       [](const V& v, O& o) { o.eps = v.number; },
       [](const O& o) { return fmt::format("{}", o.eps); }},
      {OptionInfo::Number("cfg-scale", 0, 100, "0: off",
                          "Classifier-free guidance; doubles the work"),
       [](const V& v, O& o) { o.cfg_scale = v.number; },
       [](const O& o) { return fmt::format("{}", o.cfg_scale); }},
      {OptionInfo::Number("threshold", 0, 1, "off",
                          "Parallel decoding: settle every token at least this probable (try 0.9)"),
       [](const V& v, O& o) { o.threshold = v.number; },
       [](const O& o) { return Text(o.threshold); }},
      {OptionInfo::Number("first-threshold", 0, 1, "off",
                          "Settle a token that was at least this probable in the first step "
                          "without another look, once everything before it is settled (try 0.99)"),
       [](const V& v, O& o) { o.first_threshold = v.number; },
       [](const O& o) { return Text(o.first_threshold); }},
      {OptionInfo::Number("factor", 1e-6, 1e6, "off",
                          "Parallel decoding by Fast-dLLM's factor rule (try 1)"),
       [](const V& v, O& o) { o.factor = v.number; }, [](const O& o) { return Text(o.factor); }},
      {OptionInfo::Number(
           "entropy-bound", 0, 1e6, "off",
           "Parallel decoding: settle the surest tokens while their entropies, without "
           "the largest, add up to at most this (try 0.1)"),
       [](const V& v, O& o) { o.entropy_bound = v.number; },
       [](const O& o) { return Text(o.entropy_bound); }},
      {OptionInfo::Number(
           "hierarchical", 0, 1, "off",
           "Parallel decoding: settle the surest of every run of masks if it is more probable than "
           "this, and every token that reaches the threshold (try 0.4)"),
       [](const V& v, O& o) { o.hierarchical = v.number; },
       [](const O& o) { return Text(o.hierarchical); }},
      {OptionInfo::Number(
           "klass", 0, 1e6, "off",
           "Parallel decoding: settle tokens that reach the threshold and whose distribution moved "
           "less than this (KL) in the last two steps (try 0.01)"),
       [](const V& v, O& o) { o.klass = v.number; }, [](const O& o) { return Text(o.klass); }},
      {OptionInfo::Number(
           "loosen", 0, 1, "0",
           "Lower the threshold by up to this share as the block fills (Streaming-dLLM uses 0.3)"),
       [](const V& v, O& o) { o.loosen = v.number; },
       [](const O& o) { return fmt::format("{}", o.loosen); }},
      {OptionInfo::Number(
           "credit", 0, 100, "0: off",
           "Favour tokens that were the best in earlier steps (CreditDecoding uses 0.7)"),
       [](const V& v, O& o) { o.credit = v.number; },
       [](const O& o) { return fmt::format("{}", o.credit); }},
      {OptionInfo::Number("credit-decay", 0, 1, "0.8", "Share of a credit left after a step"),
       [](const V& v, O& o) { o.credit_decay = v.number; },
       [](const O& o) { return fmt::format("{}", o.credit_decay); }},
      {OptionInfo::Number("credit-power", 0, 100, "0.2",
                          "A step's credit is the best token's probability to this power"),
       [](const V& v, O& o) { o.credit_power = v.number; },
       [](const O& o) { return fmt::format("{}", o.credit_power); }},
      {OptionInfo::Number(
           "wino", 0, 1, "off",
           "Revocable decoding (WINO): settle tokens that reach the threshold (0.6), open again "
           "those that are less probable than this when hidden (try 0.9)"),
       [](const V& v, O& o) { o.wino = v.number; }, [](const O& o) { return Text(o.wino); }},
      {OptionInfo::Count(
           "saber", 0, kLong, "0: off",
           "Revocable decoding (Saber): settle at least this many tokens and those surer than the "
           "mean so far, open again those that lost confidence (try 2)"),
       [](const V& v, O& o) { o.saber = v.count(); },
       [](const O& o) { return fmt::format("{}", o.saber); }},
      {OptionInfo::Flag("prophet", "off",
                        "Settle the rest of a block once its best tokens are far ahead of the "
                        "second best (Prophet)"),
       [](const V& v, O& o) { o.prophet = v.flag(); },
       [](const O& o) { return std::string(o.prophet ? "on" : "off"); }},
      {OptionInfo::Number(
           "edit-threshold", 0, 1, "off; LLaDA2.1 0.5",
           "Rewrite a settled token of the block when another is more probable than this"),
       [](const V& v, O& o) { o.edit_threshold = v.number; },
       [](const O& o) { return Text(o.edit_threshold); }},
      {OptionInfo::Count("max-post-steps", 0, kLong, "16",
                         "Passes over a full block that may still edit it"),
       [](const V& v, O& o) { o.max_post_steps = v.count(); },
       [](const O& o) { return fmt::format("{}", o.max_post_steps); }},
      {OptionInfo::Choice("eos", Names(kEosRules), "free",
                          "End tokens: free, never chosen, or settled last"),
       [](const V& v, O& o) { o.eos_rule = kEosRules[v.count()].second; },
       [](const O& o) { return NameOf(kEosRules, o.eos_rule); }},
      {OptionInfo::Choice("early-stop", Names(kStops), "on, or block if the makers do so",
                          "Stop when the answer has ended (on), after the block it ends in "
                          "(block), or never (off)"),
       [](const V& v, O& o) { o.stop = kStops[v.count()].second; },
       [](const O& o) { return NameOf(kStops, o.stop); }},
      {OptionInfo::Flag("exact", "off",
                        "One token per step and no cache, window or parallel decoding"),
       [](const V& v, O& o) { o.exact = v.flag(); },
       [](const O& o) { return std::string(o.exact ? "on" : "off"); }},
      {OptionInfo::Count(
           "grow", 0, 65536, "a canvas of up to 64, if the model can",
           "How many tokens longer a text may get while its gaps are filled (DreamOn)"),
       [](const V& v, O& o) { o.grow = v.count(); },
       [](const O& o) { return o.grow ? fmt::format("{}", *o.grow) : "off"; }},
      {OptionInfo::Count("seed", 0, 18446744073709551615.0, "0", "Random seed"),
       [](const V& v, O& o) { o.seed = v.whole; },
       [](const O& o) { return fmt::format("{}", o.seed); }},
  };
  return table;
}

std::vector<std::pair<std::string, std::string>> DescribeDecodeOptions(
    const DecodeOptions& options) {
  std::vector<std::pair<std::string, std::string>> described = {
      {"schedule", NameOf(kSchedules, options.schedule)},
      {"draw", options.draw == Draw::kGumbel ? "gumbel" : "filtered"}};
  for (const DecodeOption& option : DecodeOptionTable()) {
    described.emplace_back(option.info.name, option.get(options));
  }
  return described;
}

}  // namespace spa
