// The likelihood of a text after another, for a model that fills masks in any order.
//
// A left-to-right model multiplies conditionals; here there is one such product for every order,
// and their mean logarithm is a lower bound of ln p(target | prompt). With k of the n target
// positions masked at random,
//     bound = mean over k = 1..n of (n / k) * sum over the masked of ln p(token | the others).
// For one token the bound is exact. Blocks of a block-diffusion model are scored one after another,
// each after the ones before it; a block that the target does not fill ends in masks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"

namespace spa {

enum class Estimator {
  kAuto,       // kEnumerate if it takes no more passes than the draws, else kCount
  kEnumerate,  // the bound without noise: all 2^n - 1 sets of masks
  kCount,      // LLaDA: k drawn uniformly, stratified; then k positions
  kRate,       // Dream: each position masked with probability t, t stratified; weight 1 / t
  kChain,      // left to right, the rest masked: n passes, no noise, and a number for every token
};

// "auto", "enumerate", "llada", "dream", "chain". The first throws Error naming them.
Estimator ParseEstimator(std::string_view name);
std::string EstimatorName(Estimator estimator);

struct LikelihoodOptions {
  Estimator estimator = Estimator::kAuto;
  // Of kCount and kRate, in strata of kDrawsTogether. Targets scored with the same seed share them,
  // so that their noise cancels when they are compared.
  size_t draws = 32;
  uint64_t seed = 0;
  // The end-of-text token follows the target; it is never masked (Dream's evaluation).
  bool end_token = false;
  // Also whether greedy decoding writes the target: up to n passes more; none with kChain, which
  // decodes left to right. The others settle the surest position first.
  bool greedy = false;
  std::optional<AttentionPattern> attention = {};  // nullopt: the model's
  size_t batch_rows = 1024;                        // rows of a forward pass, over all its sequences

  static constexpr size_t kDrawsTogether = 8;
};

struct LikelihoodRequest {
  std::vector<TokenId> prompt, target;  // at least one token each
};

struct TokenLikelihood {
  double log_probability = 0.0;
  TokenId best = 0;  // the most probable token there
  double best_log_probability = 0.0;
};

struct Likelihood {
  double log_probability = 0.0;         // natural logarithm, of the whole target
  double standard_error = 0.0;          // of the estimate; 0 without draws
  std::optional<bool> is_greedy;        // if it was asked for, or kChain
  std::vector<TokenLikelihood> tokens;  // kChain: one for each token of the target
};

// Scores requests step by step, so other work can run in between. Identical passes run only once
// (the choices of a question often differ in one token).
class Scorer {
 public:
  // Throws Error if a request is empty, holds ids outside the vocabulary or does not fit the
  // context. The engine must outlive the scorer.
  Scorer(Engine& engine, std::vector<LikelihoodRequest> requests, const LikelihoodOptions& options);

  bool done() const { return next_ == passes_.size(); }
  size_t passes() const { return passes_.size(); }
  size_t passes_done() const { return next_; }
  void Step();  // a forward pass over several of them
  // Once done; is_greedy is left to LogLikelihoods, except with kChain.
  std::vector<Likelihood> Results() const;

 private:
  // The tokens of a request with some masked, up to `end`.
  struct Pass {
    size_t request = 0;
    size_t end = 0;
    BlockRange open = {};               // masked
    std::vector<uint32_t> masked = {};  // and these
    std::vector<size_t> reads = {};     // indices of reads_
  };
  // ln p of a token in a pass, and what it counts for.
  struct Read {
    size_t request = 0;
    size_t group = 0;  // of draws; kNoGroup: no noise
    double weight = 1.0;
    uint32_t position = 0;
    TokenId token = 0;
    TokenLikelihood result = {};
  };

  // The positions [begin, end) of the target in one block. The block is masked up to open_end, and
  // the pass ends at `visible`.
  struct Span {
    size_t begin = 0, end = 0, open_end = 0, visible = 0;
  };
  std::vector<Span> SpansOf(const LikelihoodRequest& request) const;
  void AddSpan(size_t request, const Span& span);
  void AddEnumerated(size_t request, const Span& span);
  void AddDraws(size_t request, const Span& span);
  void AddChain(size_t request, const Span& span);
  // `reads`: the masked positions whose tokens are read.
  void AddPass(Pass pass, std::span<const uint32_t> reads, size_t group, double weight);
  std::vector<TokenId> IdsOf(const Pass& pass) const;
  size_t num_groups() const;

  Engine& engine_;
  LikelihoodOptions options_;
  AttentionPattern attention_;
  std::vector<LikelihoodRequest> requests_;
  std::vector<Pass> passes_;
  std::vector<Read> reads_;
  std::unordered_multimap<uint64_t, size_t> pass_of_;  // by a hash of its tokens
  size_t next_ = 0;
};

// All requests, in their order. `progress` gets the share that is done.
std::vector<Likelihood> LogLikelihoods(Engine& engine, std::vector<LikelihoodRequest> requests,
                                       const LikelihoodOptions& options,
                                       const std::function<void(double share)>& progress = {});
// One request.
Likelihood LogLikelihood(Engine& engine, std::vector<TokenId> prompt, std::vector<TokenId> target,
                         const LikelihoodOptions& options);

// The ids of a text and of what follows it, cut as the evaluation harness does: white space at the
// end of the text belongs to the continuation, which is what encoding both adds to encoding the
// text. Throws Error if either is empty.
LikelihoodRequest EncodeContinuation(const Engine& engine, const std::string& text,
                                     const std::string& continuation);

}  // namespace spa
