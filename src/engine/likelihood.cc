#include "engine/likelihood.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/random.h"
#include "engine/runner.h"
#include "kernels/logit_stats.h"
#include "policies/none.h"

namespace spa {
namespace {

constexpr size_t kNoGroup = SIZE_MAX;
constexpr size_t kTogether = LikelihoodOptions::kDrawsTogether;
constexpr uint64_t kStratumDraw = UINT64_MAX;  // no position of a target has this number
constexpr double kLeastRate = 1e-3;            // Dream's

struct NamedEstimator {
  Estimator estimator;
  const char* name;
};
constexpr std::array<NamedEstimator, 5> kEstimators = {{{Estimator::kAuto, "auto"},
                                                        {Estimator::kEnumerate, "enumerate"},
                                                        {Estimator::kCount, "llada"},
                                                        {Estimator::kRate, "dream"},
                                                        {Estimator::kChain, "chain"}}};

uint64_t Hash(std::span<const TokenId> ids) {
  uint64_t hash = ids.size();
  for (const TokenId id : ids) hash = MixBits(hash ^ static_cast<uint64_t>(id)) + ids.size();
  return hash;
}

// Target positions in a random order, the same for every target under a seed and draw.
std::vector<uint32_t> Shuffled(size_t begin, size_t end, size_t target,
                               const RandomStream& random) {
  std::vector<uint32_t> positions(end - begin);
  std::iota(positions.begin(), positions.end(), static_cast<uint32_t>(begin));
  std::ranges::stable_sort(positions, [&](uint32_t a, uint32_t b) {
    return random.Uniform(a - target) < random.Uniform(b - target);
  });
  return positions;
}

}  // namespace

Estimator ParseEstimator(std::string_view name) {
  std::vector<std::string> names;
  for (const NamedEstimator& known : kEstimators) {
    if (name == known.name) return known.estimator;
    names.emplace_back(known.name);
  }
  throw Error("there is no estimator '{}'{}: choose from {}", name, DidYouMean(name, names),
              fmt::join(names, ", "));
}

std::string EstimatorName(Estimator estimator) {
  return std::ranges::find(kEstimators, estimator, &NamedEstimator::estimator)->name;
}

Scorer::Scorer(Engine& engine, std::vector<LikelihoodRequest> requests,
               const LikelihoodOptions& options)
    : engine_(engine),
      options_(options),
      attention_(options.attention.value_or(engine.config().attention)),
      requests_(std::move(requests)) {
  const size_t context = engine_.config().context_length;
  for (LikelihoodRequest& request : requests_) {
    if (request.prompt.empty())
      throw Error("the prompt is empty: a target needs a token before it");
    if (request.target.empty()) throw Error("there is nothing to score: the target is empty");
    engine_.CheckIds(request.prompt);
    engine_.CheckIds(request.target);
    const size_t tokens = request.prompt.size() + request.target.size();
    if (tokens + (options_.end_token ? 1 : 0) > context) {
      throw Error(
          "the prompt has {} tokens and the target {}, but the model's context is {} tokens",
          request.prompt.size(), request.target.size(), context);
    }
  }
  if (options_.end_token && !engine_.config().eos_id) {
    throw Error("this model names no end-of-text token to put after the target");
  }
  if (options_.end_token && attention_.kind == AttentionKind::kBlocks) {
    throw Error("a block-diffusion model does not see the end token after the target");
  }
  for (size_t i = 0; i < requests_.size(); ++i) {
    for (const Span& span : SpansOf(requests_[i])) AddSpan(i, span);
  }
}

std::vector<Scorer::Span> Scorer::SpansOf(const LikelihoodRequest& request) const {
  const size_t prompt = request.prompt.size(), end = prompt + request.target.size();
  if (attention_.kind == AttentionKind::kFull) {
    return {{prompt, end, end, end + (options_.end_token ? 1 : 0)}};
  }
  std::vector<Span> spans;
  for (size_t begin = prompt; begin < end;) {
    const size_t block = attention_.BlockEnd(begin, prompt);
    spans.push_back({begin, std::min(block, end), block, block});
    begin = block;
  }
  return spans;
}

void Scorer::AddSpan(size_t request, const Span& span) {
  const size_t length = span.end - span.begin;
  const bool few = length < 16 && (size_t{1} << length) - 1 <= options_.draws;
  switch (options_.estimator) {
    case Estimator::kAuto:
      return few ? AddEnumerated(request, span) : AddDraws(request, span);
    case Estimator::kEnumerate:
      if (length > 16) throw Error("{} tokens have too many mask sets to enumerate", length);
      return AddEnumerated(request, span);
    case Estimator::kChain:
      return AddChain(request, span);
    case Estimator::kCount:
    case Estimator::kRate:
      return AddDraws(request, span);
  }
}

void Scorer::AddEnumerated(size_t request, const Span& span) {
  const size_t n = span.end - span.begin;
  std::vector<double> weights(n + 1);  // 1 / (k C(n, k))
  double sets = 1.0;
  for (size_t k = 1; k <= n; ++k) {
    sets *= static_cast<double>(n - k + 1) / static_cast<double>(k);
    weights[k] = 1.0 / (static_cast<double>(k) * sets);
  }
  for (size_t bits = 1; bits < size_t{1} << n; ++bits) {
    Pass pass{.request = request, .end = span.visible, .open = {span.end, span.open_end}};
    for (size_t i = 0; i < n; ++i) {
      if ((bits >> i & 1) != 0) pass.masked.push_back(static_cast<uint32_t>(span.begin + i));
    }
    const std::vector<uint32_t> masked = pass.masked;
    AddPass(std::move(pass), masked, kNoGroup, weights[masked.size()]);
  }
}

void Scorer::AddDraws(size_t request, const Span& span) {
  if (options_.draws == 0) throw Error("an estimate needs at least one draw");
  const size_t n = span.end - span.begin, target = requests_[request].prompt.size();
  for (size_t group = 0; group < num_groups(); ++group) {
    const double u = RandomStream(options_.seed, group, kStratumDraw).Uniform(span.begin - target);
    for (size_t j = 0; j < kTogether; ++j) {
      const size_t draw = group * kTogether + j;
      const RandomStream random(options_.seed, draw, 0);
      Pass pass{.request = request, .end = span.visible, .open = {span.end, span.open_end}};
      // Uniform in [0, 1), spread over the strata.
      const double t = std::fmod(u + static_cast<double>(j) / static_cast<double>(kTogether), 1.0);
      double weight = 0.0;
      if (options_.estimator == Estimator::kRate) {
        const double rate = (1.0 - kLeastRate) * t + kLeastRate;
        for (size_t position = span.begin; position < span.end; ++position) {
          if (random.Uniform(position - target) < rate) {
            pass.masked.push_back(static_cast<uint32_t>(position));
          }
        }
        weight = 1.0 / rate;
      } else {
        const size_t count = 1 + static_cast<size_t>(t * static_cast<double>(n));
        pass.masked = Shuffled(span.begin, span.end, target, random);
        pass.masked.resize(count);
        std::ranges::sort(pass.masked);
        weight = static_cast<double>(n) / static_cast<double>(count);
      }
      if (pass.masked.empty()) continue;  // nothing to read: it counts as 0
      const std::vector<uint32_t> masked = pass.masked;
      AddPass(std::move(pass), masked, group, weight);
    }
  }
}

void Scorer::AddChain(size_t request, const Span& span) {
  for (size_t position = span.begin; position < span.end; ++position) {
    const auto read = static_cast<uint32_t>(position);
    AddPass({.request = request, .end = span.visible, .open = {position, span.open_end}},
            {&read, 1}, kNoGroup, 1.0);
  }
}

void Scorer::AddPass(Pass pass, std::span<const uint32_t> reads, size_t group, double weight) {
  const std::vector<TokenId> ids = IdsOf(pass);
  const uint64_t hash = Hash(ids);
  size_t index = passes_.size();
  const auto [first, last] = pass_of_.equal_range(hash);
  const auto same = std::find_if(first, last, [&](const auto& known) {
    const Pass& other = passes_[known.second];
    return requests_[other.request].prompt.size() == requests_[pass.request].prompt.size() &&
           IdsOf(other) == ids;
  });
  if (same != last) {
    index = same->second;
  } else {
    pass_of_.emplace(hash, index);
    passes_.push_back(pass);
  }
  const LikelihoodRequest& request = requests_[pass.request];
  for (const uint32_t position : reads) {
    passes_[index].reads.push_back(reads_.size());
    reads_.push_back({.request = pass.request,
                      .group = group,
                      .weight = weight,
                      .position = position,
                      .token = request.target[position - request.prompt.size()]});
  }
}

std::vector<TokenId> Scorer::IdsOf(const Pass& pass) const {
  const LikelihoodRequest& request = requests_[pass.request];
  std::vector<TokenId> ids = request.prompt;
  ids.insert(ids.end(), request.target.begin(), request.target.end());
  if (options_.end_token) ids.push_back(*engine_.config().eos_id);
  const TokenId mask = engine_.config().mask_id;
  ids.resize(pass.end, mask);
  std::fill(ids.begin() + static_cast<ptrdiff_t>(pass.open.begin),
            ids.begin() + static_cast<ptrdiff_t>(pass.open.end), mask);
  for (const uint32_t position : pass.masked) ids[position] = mask;
  return ids;
}

size_t Scorer::num_groups() const { return (options_.draws + kTogether - 1) / kTogether; }

void Scorer::Step() {
  SPA_CHECK(!done());
  struct Running {
    std::vector<TokenId> ids;
    std::vector<uint8_t> masked;
    std::unique_ptr<SequenceState> state;
  };
  const TokenId mask = engine_.config().mask_id;
  const size_t shift = engine_.config().logit_shift ? 1 : 0;
  std::vector<Running> running;
  size_t rows = 0;
  const size_t first = next_;
  for (; next_ < passes_.size() && (rows == 0 || rows + passes_[next_].end <= options_.batch_rows);
       ++next_) {
    Running one;
    one.ids = IdsOf(passes_[next_]);
    for (const TokenId id : one.ids) one.masked.push_back(id == mask ? 1 : 0);
    one.state = std::make_unique<SequenceState>(engine_.config(), one.ids.size(), 0,
                                                engine_.kv_type(), std::make_unique<NonePolicy>());
    one.state->set_attention(attention_);
    rows += one.ids.size();
    running.push_back(std::move(one));
  }
  std::vector<SequenceStep> batch;
  for (size_t i = 0; i < running.size(); ++i) {
    const Pass& pass = passes_[first + i];
    const size_t size = running[i].ids.size();
    batch.push_back({running[i].state.get(),
                     {.ids = running[i].ids,
                      .masked = running[i].masked,
                      .prompt_length = requests_[pass.request].prompt.size(),
                      .block_begin = size,
                      .block_end = size,
                      .shift = shift,
                      .visible = RowSet::All(size)}});
    std::vector<uint32_t> positions;
    for (const size_t read : pass.reads) positions.push_back(reads_[read].position);
    batch.back().input.wanted = batch.back().input.RowsOf(positions);
  }
  engine_.transformer().Step(batch, [&](size_t sequence, uint32_t row, std::span<float> logits) {
    const LogitStats stats = ComputeLogitStats(logits);
    for (const size_t index : passes_[first + sequence].reads) {
      Read& read = reads_[index];
      if (read.position != row + shift) continue;
      read.result = {
          .log_probability =
              static_cast<double>(logits[static_cast<size_t>(read.token)]) - stats.log_sum_exp,
          .best = static_cast<TokenId>(stats.argmax),
          .best_log_probability = static_cast<double>(stats.max) - stats.log_sum_exp};
    }
  });
  engine_.file().CheckUnchanged();
}

std::vector<Likelihood> Scorer::Results() const {
  SPA_CHECK(done());
  std::vector<Likelihood> results(requests_.size());
  const size_t groups = num_groups();
  std::vector<std::vector<double>> sums(requests_.size(), std::vector<double>(groups, 0.0));
  for (const Read& read : reads_) {
    const double term = read.weight * read.result.log_probability;
    if (read.group == kNoGroup) {
      results[read.request].log_probability += term;
    } else {
      sums[read.request][read.group] += term / static_cast<double>(kTogether);
    }
    if (options_.estimator == Estimator::kChain) {
      results[read.request].tokens.push_back(read.result);
    }
  }
  for (size_t i = 0; i < requests_.size(); ++i) {
    Likelihood& result = results[i];
    double mean = 0.0, square = 0.0;
    for (const double sum : sums[i]) mean += sum / static_cast<double>(groups);
    for (const double sum : sums[i]) square += (sum - mean) * (sum - mean);
    result.log_probability += mean;
    if (groups > 1) {
      result.standard_error = std::sqrt(square / static_cast<double>((groups - 1) * groups));
    }
    if (options_.estimator != Estimator::kChain) continue;
    result.is_greedy = true;
    for (size_t j = 0; j < result.tokens.size(); ++j) {
      if (result.tokens[j].best != requests_[i].target[j]) result.is_greedy = false;
    }
  }
  return results;
}

namespace {

// Whether each target is what greedy decoding writes, the surest position first, one per pass.
void FindGreedy(Engine& engine, std::span<const LikelihoodRequest> requests,
                const LikelihoodOptions& options, std::vector<Likelihood>& results) {
  constexpr size_t kTogetherAtMost = 16;
  const AttentionPattern attention = options.attention.value_or(engine.config().attention);
  const SharedCache none = engine.PrepareCache({});
  Runner runner(engine);
  std::map<const Generation*, size_t> request_of;
  for (size_t next = 0; next < requests.size() || !runner.empty();) {
    for (; next < requests.size() && runner.size() < kTogetherAtMost; ++next) {
      DecodeOptions decode;
      decode.schedule = Schedule::kNone;
      decode.stop = Stop::kNever;
      decode.gen_length = decode.steps = decode.block_length = requests[next].target.size();
      if (attention.kind == AttentionKind::kBlocks) {
        decode.block_attention = true;
        decode.block_length = attention.block_length;
        decode.blocks_from_start = attention.origin == BlockOrigin::kStart;
      }
      request_of[&runner.Add({requests[next].prompt, decode, none})] = next;
    }
    runner.Step();
    std::vector<Generation*> ended;
    for (const auto& generation : runner.running()) {
      const size_t request = request_of.at(generation.get());
      const Decoder& decoder = generation->decoder();
      const std::vector<TokenId>& target = requests[request].target;
      bool same = true;
      for (size_t i = 0; i < target.size(); ++i) {
        const size_t position = decoder.prompt_length() + i;
        if (decoder.masked()[position] == 0) same = same && decoder.ids()[position] == target[i];
      }
      if (same && !generation->done()) continue;
      results[request].is_greedy = same;
      ended.push_back(generation.get());
    }
    for (Generation* generation : ended) {
      request_of.erase(generation);
      runner.Remove(*generation);
    }
  }
}

}  // namespace

std::vector<Likelihood> LogLikelihoods(Engine& engine, std::vector<LikelihoodRequest> requests,
                                       const LikelihoodOptions& options,
                                       const std::function<void(double share)>& progress) {
  Scorer scorer(engine, requests, options);
  while (!scorer.done()) {
    scorer.Step();
    if (progress) {
      progress(static_cast<double>(scorer.passes_done()) / static_cast<double>(scorer.passes()));
    }
  }
  std::vector<Likelihood> results = scorer.Results();
  if (options.greedy && options.estimator != Estimator::kChain) {
    FindGreedy(engine, requests, options, results);
  }
  return results;
}

Likelihood LogLikelihood(Engine& engine, std::vector<TokenId> prompt, std::vector<TokenId> target,
                         const LikelihoodOptions& options) {
  std::vector<LikelihoodRequest> requests;
  requests.push_back({std::move(prompt), std::move(target)});
  return LogLikelihoods(engine, std::move(requests), options).front();
}

LikelihoodRequest EncodeContinuation(const Engine& engine, const std::string& text,
                                     const std::string& continuation) {
  const size_t end = text.find_last_not_of(" \t\r\n\f\v");
  const size_t border = end == std::string::npos ? 0 : end + 1;
  const std::string before = text.substr(0, border), after = text.substr(border) + continuation;
  if (before.empty()) throw Error("the text before the continuation is empty");
  LikelihoodRequest request;
  request.prompt = engine.Encode({.messages = {}, .text = before});
  const std::vector<TokenId> all = engine.Encode({.messages = {}, .text = before + after});
  if (all.size() <= request.prompt.size()) {
    throw Error("nothing is left to score after '{}'", before);
  }
  request.target.assign(all.begin() + static_cast<ptrdiff_t>(request.prompt.size()), all.end());
  return request;
}

}  // namespace spa
