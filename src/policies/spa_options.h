// The options of SPA-Cache. Its three presets are one table (spa_options.cc): ours, the paper's
// algorithm as printed, and the authors' code.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "policies/registry.h"
#include "transformer/cache_policy.h"

namespace spa {

// What shows that a row has drifted. The last four are controls: they look at no projection.
enum class Identifier {
  kSingular,  // W_r x, a low-rank proxy of the value (the paper)
  kValue,
  kKey,
  kQuery,
  kAttnInput,
  kAttnOutput,  // the row's attention output, before the output projection
  kChanged,     // one bit: the input moved at all
  kRandom,
  kAge,    // waited longest
  kLocal,  // nearest to the block
};

// Which rows compete for the budget between refreshes.
enum class Scope {
  kGen,    // the generated ones
  kAll,    // all
  kReach,  // the generated ones up to the end of the block being decoded
};

// How the rows of the first layer are chosen. Its input is the embeddings, which are no help: that
// of an unchanged token does not move, but its attention output does.
enum class FirstLayer {
  kAttention,  // by their attention output, with the largest budget of all layers
  kDense,      // all rows in scope
  kProxy,      // as in any other layer
};

struct SpaOptions {
  Identifier identifier = Identifier::kSingular;
  size_t rank = 0;              // kSingular
  std::vector<double> ratios;   // budget per layer
  float min_drift = 0.0f;       // rows that moved less (1 - cosine) do not compete; 0: all do
  Reuse form = Reuse::kUpdate;  // or kOutput, Algorithm 1 read literally
  Scope scope = Scope::kReach;
  FirstLayer first_layer = FirstLayer::kAttention;
  bool overwrite_proxy = false;  // compare with the last step, not with the last recomputation
  bool full_kv = false;          // keys and values of every row in scope, not of recomputed ones
  size_t warmup = 0;             // steps after the first that recompute everything
  size_t refresh_prompt = 0;     // recompute everything every this many steps; 0: never again
  size_t refresh_gen = 0;        // recompute the scope every this many steps; 0: never
  size_t outside = 0;   // kReach: rows outside of the block compete whenever so many tokens were
                        // settled and when it begins; 0, or if it is short: those before it always
  bool prompt = false;  // rows of the prompt compete whenever all rows outside of the block do
  bool screen = true;   // rows that hardly moved do not attend (AttentionScreen)
  bool focus = false;   // rows that are read and rows just settled go before others
  bool per_token = false;  // a step that follows n settled tokens gets n budgets
};

std::vector<OptionInfo> SpaOptionTable();

struct SpaModel;

// Reads the options, then loads or computes the singular proxies.
std::shared_ptr<const SpaModel> PrepareSpa(OptionReader& options, const PolicyContext& context);
PolicyFactory MakeSpa(OptionReader& options, const PolicyContext& context);

}  // namespace spa
