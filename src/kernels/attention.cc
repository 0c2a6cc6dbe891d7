// Softmax attention with scores that never leave L1: a task is a block of queries of one KV head;
// blocks of keys and values pass by, and each query keeps its running maximum, sum and output.
#include "kernels/attention.h"

#include "kernels/targets.h"
// The rest is compiled once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "kernels/fma_tile-inl.h"
#include "kernels/kv_store.h"
// After foreach_target, as it is compiled per target too.
#include <hwy/contrib/math/math-inl.h>

#ifndef SPA_KERNELS_ATTENTION_TASK_
#define SPA_KERNELS_ATTENTION_TASK_
namespace spa {

inline constexpr size_t kQueryBlock = 48;  // query rows of a task: 8 tiles of 6, or 4 of 12
inline constexpr size_t kMeanRows = 12;    // rows of a task that averages weights
// Some keys of a block: bit i is key i.
using KeySet = uint64_t;
static_assert(kKeyBlock == 64);

// The keys of a block below n.
inline KeySet KeysBelow(size_t n) { return n >= kKeyBlock ? ~KeySet{0} : (KeySet{1} << n) - 1; }

// The softmax of one query head: weight of a score = exp(score - max) / sum.
struct SoftmaxStats {
  float max;
  float sum;
};

// Queries [first, first + count) of those that read kv_head. With g query heads per KV head, query
// i is row i / g of the job, head kv_head * g + i % g.
struct AttentionTask {
  const AttentionJob* job;
  size_t num_heads;
  size_t kv_head;
  size_t first;
  size_t count;
  SoftmaxStats* stats;    // [job rows, num_heads] if mean weights are wanted, else null
  const KeySet* visible;  // [blocks of keys]: those that are not hidden

  // The keys that a row of the job sees of those from first_key on.
  KeySet SeenKeys(size_t row, size_t first_key) const {
    KeySet seen = visible[first_key / kKeyBlock];
    if (!job->key_end.empty()) {
      seen &= KeysBelow(std::max<size_t>(job->key_end[row], first_key) - first_key);
    }
    if (!job->key_begin.empty()) {
      seen &= ~KeysBelow(std::max<size_t>(job->key_begin[row], first_key) - first_key);
    }
    return seen;
  }
  float ScoreScale() const {
    return job->score_scale != 0.0f ? job->score_scale
                                    : 1.0f / std::sqrt(static_cast<float>(job->kv->head_dim()));
  }
};

}  // namespace spa
#endif  // SPA_KERNELS_ATTENTION_TASK_

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Weights of scores so far below the largest add nothing to a sum of floats, but may be denormal,
// and some processors take a hundred cycles to make such a number, or to multiply with it.
constexpr float kLeastScore = -60.0f;

KeySet SeenByAny(const KeySet* seen, size_t num_rows) {
  KeySet any = 0;
  for (size_t r = 0; r < num_rows; ++r) any |= seen[r];
  return any;
}

// scores[r][0..kKeyBlock) of the keys from first_key on; minus infinity for those that query r does
// not see. queries: [num_rows, head_dim], seen: [num_rows], scores: [num_rows, kKeyBlock]
template <class Loader>
void ComputeScores(const KvCache::Store& store, size_t kv_head, const float* queries,
                   const KeySet* seen, size_t num_rows, size_t first_key, FetchPlan fetch,
                   float* scores) {
  using Element = typename Loader::Element;
  const Element* keys = reinterpret_cast<const Element*>(store.keys.data());
  const KeySet seen_by_any = SeenByAny(seen, num_rows);
  std::memset(scores, 0, num_rows * kKeyBlock * sizeof(float));
  constexpr size_t kKeysAtATime = kFmaPanels * kPanelWidth;
  for (size_t key = 0; key < kKeyBlock; key += kKeysAtATime) {
    if (((seen_by_any >> key) & KeysBelow(kKeysAtATime)) == 0) continue;
    const size_t num_keys = HWY_MIN(kKeysAtATime, store.padded_rows - first_key - key);
    AddInputsOfRows<Loader>(num_rows, {queries, store.head_dim},
                            {keys + store.KeyPanel(kv_head, first_key + key, 0),
                             kPanelWidth * store.head_dim, num_keys / kPanelWidth},
                            store.head_dim, {scores + key, kKeyBlock, kPanelWidth}, fetch);
  }
  for (size_t r = 0; r < num_rows; ++r) {
    for (KeySet unseen = ~seen[r]; unseen != 0; unseen &= unseen - 1) {
      scores[r * kKeyBlock + static_cast<size_t>(std::countr_zero(unseen))] = kMinusInfinity;
    }
  }
}

HWY_INLINE float MaxScore(const float* scores) {
  constexpr hn::CappedTag<float, kPanelWidth> df;
  auto max = hn::Load(df, scores);
  for (size_t i = hn::Lanes(df); i < kKeyBlock; i += hn::Lanes(df)) {
    max = hn::Max(max, hn::Load(df, scores + i));
  }
  return hn::GetLane(hn::MaxOfLanes(df, max));
}

// e^x for x in [kLeastScore, 0], within 2 units in the last place; fewer steps than hn::Exp takes
// for every x. x = n ln 2 + r, and e^r is a polynomial with the least relative error for
// |r| <= ln 2 / 2.
template <class DF, class V>
HWY_INLINE V ExpOfScore(DF df, V x) {
  constexpr hn::RebindToSigned<DF> di;
  const auto f = [&](float value) HWY_ATTR { return hn::Set(df, value); };
  // Added to a small float, leaves its nearest integer in the last bits.
  const V round = f(1.5f * 0x1p23f);
  const V shifted = hn::MulAdd(x, f(1.44269504f), round);
  const V n = hn::Sub(shifted, round);
  V r = hn::NegMulAdd(n, f(0.693359375f), x);  // ln 2, of which n times this part is exact
  r = hn::NegMulAdd(n, f(-2.12194442e-4f), r);
  V e = hn::MulAdd(f(0.00831252496f), r, f(0.0418901132f));
  e = hn::MulAdd(e, r, f(0.166671145f));
  e = hn::MulAdd(e, r, f(0.499992318f));
  e = hn::MulAdd(e, r, f(1.0f));
  e = hn::MulAdd(e, r, f(1.0f));
  // n more in the exponent
  return hn::BitCast(df, hn::Add(hn::BitCast(di, e), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// scores = exp(scores - max), times the scale of the key's value if there are scales; returns the
// sum of the exponentials.
HWY_INLINE float ExpScores(float max, const float* value_scales, float* scores) {
  constexpr hn::CappedTag<float, kPanelWidth> df;
  const auto offset = hn::Set(df, max);
  const auto least = hn::Set(df, kLeastScore);
  auto sum = hn::Zero(df);
  for (size_t i = 0; i < kKeyBlock; i += hn::Lanes(df)) {
    const auto below_max = hn::Sub(hn::Load(df, scores + i), offset);
    const auto is_far = hn::Lt(below_max, least);
    const auto near = hn::IfThenElse(is_far, least, below_max);
    const auto weight = hn::IfThenZeroElse(is_far, ExpOfScore(df, near));
    sum = hn::Add(sum, weight);
    hn::Store(value_scales == nullptr ? weight : hn::Mul(weight, hn::Load(df, value_scales + i)),
              df, scores + i);
  }
  return hn::GetLane(hn::SumOfLanes(df, sum));
}

// to[0..n) = from[0..n) * factor
void ScaleRow(const float* from, float factor, size_t n, float* to) {
  constexpr hn::CappedTag<float, 8> df;
  const auto f = hn::Set(df, factor);
  size_t i = 0;
  for (; i + hn::Lanes(df) <= n; i += hn::Lanes(df)) {
    hn::StoreU(hn::Mul(hn::LoadU(df, from + i), f), df, to + i);
  }
  for (; i < n; ++i) to[i] = from[i] * factor;
}

// Folds a block of scores into the state of each query; leaves the weights of the block's values in
// scores. scores: [num_rows, kKeyBlock], out: [num_rows, padded_dim]
void UpdateSoftmax(const KeySet* seen, size_t num_rows, size_t padded_dim,
                   const float* value_scales, SoftmaxStats* stats, float* scores, float* out) {
  // All maxima first: queries do not wait for each other.
  float block_max[kQueryBlock];
  for (size_t r = 0; r < num_rows; ++r) block_max[r] = MaxScore(scores + r * kKeyBlock);
  for (size_t r = 0; r < num_rows; ++r) {
    if (block_max[r] <= stats[r].max) continue;
    const float shrink = std::exp(stats[r].max - block_max[r]);
    stats[r].max = block_max[r];
    stats[r].sum *= shrink;
    ScaleRow(out + r * padded_dim, shrink, padded_dim, out + r * padded_dim);
  }
  for (size_t r = 0; r < num_rows; ++r) {
    // The maximum of no scores is minus infinity, which is no offset for an exponential.
    if (seen[r] == 0) continue;
    stats[r].sum += ExpScores(stats[r].max, value_scales, scores + r * kKeyBlock);
  }
}

// out[r] += sum of weights[r][key] times the value of the key, over the keys that query r sees.
// Values it does not see are not even multiplied with zero: they may be anything.
// weights: [num_rows, kKeyBlock], out: [num_rows, padded_dim]
template <class Loader>
void AddValues(const KvCache::Store& store, size_t kv_head, const float* weights,
               const KeySet* seen, size_t num_rows, size_t first_key, FetchPlan fetch, float* out) {
  using Element = typename Loader::Element;
  const Element* values = reinterpret_cast<const Element*>(store.values.data());
  const size_t num_panels = store.padded_dim / kPanelWidth;
  for (size_t p = 0; p < num_panels; p += kFmaPanels) {
    const size_t dim = p * kPanelWidth;
    const Element* panel = values + store.ValuePanel(kv_head, first_key, dim);
    for (size_t r = 0, count; r < num_rows; r += count) {
      // Queries that see the same keys share them.
      for (count = 1; r + count < num_rows && seen[r + count] == seen[r]; ++count) {
      }
      for (KeySet rest = seen[r]; rest != 0;) {
        const auto first = static_cast<size_t>(std::countr_zero(rest));
        const auto num_keys = static_cast<size_t>(std::countr_one(rest >> first));
        AddInputsOfRows<Loader>(
            count, {weights + r * kKeyBlock + first, kKeyBlock},
            {panel + first * kPanelWidth, store.BlockRows(first_key) * kPanelWidth,
             HWY_MIN(kFmaPanels, num_panels - p)},
            num_keys, {out + r * store.padded_dim + dim, store.padded_dim, kPanelWidth}, fetch);
        rest &= ~KeysBelow(first + num_keys);
      }
    }
  }
}

template <class KeyLoader, class ValueLoader>
void AttendBlock(const AttentionTask& task) {
  const KvCache::Store& store = task.job->kv->store();
  const size_t head_dim = store.head_dim;
  const size_t padded_dim = store.padded_dim;
  const size_t heads_per_kv = task.num_heads / store.num_kv_heads;

  thread_local Mat<float> query_scratch, out_scratch;
  query_scratch.Resize(kQueryBlock, head_dim);
  out_scratch.Resize(kQueryBlock, padded_dim);
  HWY_ALIGN float scores[kQueryBlock * kKeyBlock];
  SoftmaxStats stats[kQueryBlock];
  const auto row_of = [&](size_t i) { return (task.first + i) / heads_per_kv; };
  const auto head_of = [&](size_t i) {
    return task.kv_head * heads_per_kv + (task.first + i) % heads_per_kv;
  };

  const float scale = task.ScoreScale();
  for (size_t i = 0; i < task.count; ++i) {
    ScaleRow(task.job->q.Row(row_of(i)) + head_of(i) * head_dim, scale, head_dim,
             query_scratch.Row(i));
    stats[i] = {kMinusInfinity, 0.0f};
  }
  std::memset(out_scratch.data(), 0, task.count * padded_dim * sizeof(float));

  // While the scores of a block are made, its values come from memory, and while those are added,
  // the keys of the next block.
  const size_t num_dims = padded_dim / kPanelWidth;
  const auto fetch_values = [&](size_t first_key) {
    return FetchPlan(
        store.values.data() + store.ValuePanel(task.kv_head, first_key, 0) * store.ValueBytes(),
        store.BlockRows(first_key) * padded_dim * store.ValueBytes(),
        NumFmaTiles(task.count, kKeyBlock / kPanelWidth) * head_dim);
  };
  const auto fetch_keys = [&](size_t first_key) {
    return FetchPlan(
        store.keys.data() + store.KeyPanel(task.kv_head, first_key, 0) * store.KeyBytes(),
        store.BlockRows(first_key) * head_dim * store.KeyBytes(),
        NumFmaTiles(task.count, num_dims) * kKeyBlock);
  };
  for (size_t first_key = 0; first_key < store.num_rows; first_key += kKeyBlock) {
    KeySet seen[kQueryBlock];
    for (size_t i = 0; i < task.count; ++i) seen[i] = task.SeenKeys(row_of(i), first_key);
    if (SeenByAny(seen, task.count) == 0) continue;
    ComputeScores<KeyLoader>(store, task.kv_head, query_scratch.data(), seen, task.count, first_key,
                             fetch_values(first_key), scores);
    const float* value_scales = nullptr;
    if constexpr (std::is_same_v<ValueLoader, LoadInt8>) {
      value_scales = store.ValueScales(task.kv_head, first_key);
    }
    UpdateSoftmax(seen, task.count, padded_dim, value_scales, stats, scores, out_scratch.data());
    AddValues<ValueLoader>(store, task.kv_head, scores, seen, task.count, first_key,
                           fetch_keys(first_key + kKeyBlock), out_scratch.data());
  }
  for (size_t i = 0; i < task.count; ++i) {
    const float factor = stats[i].sum == 0.0f ? 0.0f : 1.0f / stats[i].sum;
    ScaleRow(out_scratch.Row(i), factor, head_dim,
             task.job->out.Row(row_of(i)) + head_of(i) * head_dim);
    if (task.stats != nullptr) task.stats[row_of(i) * task.num_heads + head_of(i)] = stats[i];
    if (task.job->log_sums.data != nullptr) {
      task.job->log_sums.Row(row_of(i))[head_of(i)] = stats[i].max + std::log(stats[i].sum);
    }
  }
}

// mean_weights of the rows [first, first + count) of the job, from the scores once more.
template <class Loader>
void MeanWeightsBlock(const AttentionTask& task) {
  const KvCache::Store& store = task.job->kv->store();
  const size_t head_dim = store.head_dim;
  const size_t heads_per_kv = task.num_heads / store.num_kv_heads;
  thread_local Mat<float> query_scratch;
  query_scratch.Resize(kFmaRows, head_dim);
  HWY_ALIGN float scores[kFmaRows * kKeyBlock];
  const float scale = task.ScoreScale();
  for (size_t i = task.first; i < task.first + task.count; i += kFmaRows) {
    const size_t num_rows = HWY_MIN(kFmaRows, task.first + task.count - i);
    for (size_t r = 0; r < num_rows; ++r) {
      std::memset(task.job->mean_weights.Row(i + r), 0, store.num_rows * sizeof(float));
    }
    for (size_t head = 0; head < task.num_heads; ++head) {
      for (size_t r = 0; r < num_rows; ++r) {
        ScaleRow(task.job->q.Row(i + r) + head * head_dim, scale, head_dim, query_scratch.Row(r));
      }
      for (size_t first_key = 0; first_key < store.num_rows; first_key += kKeyBlock) {
        const size_t num_keys = HWY_MIN(kKeyBlock, store.num_rows - first_key);
        KeySet seen[kFmaRows];
        for (size_t r = 0; r < num_rows; ++r) seen[r] = task.SeenKeys(i + r, first_key);
        ComputeScores<Loader>(store, head / heads_per_kv, query_scratch.data(), seen, num_rows,
                              first_key, FetchPlan(), scores);
        for (size_t r = 0; r < num_rows; ++r) {
          if (seen[r] == 0) continue;
          const SoftmaxStats& stats = task.stats[(i + r) * task.num_heads + head];
          float* weights = scores + r * kKeyBlock;
          ExpScores(stats.max, nullptr, weights);
          const float factor = 1.0f / (stats.sum * static_cast<float>(task.num_heads));
          float* mean = task.job->mean_weights.Row(i + r) + first_key;
          for (size_t key = 0; key < num_keys; ++key) mean[key] += weights[key] * factor;
        }
      }
    }
  }
}

void RunAttentionTask(const AttentionTask& task) {
  switch (task.job->kv->type()) {
    case KvType::kF32:
      return AttendBlock<LoadF32, LoadF32>(task);
    case KvType::kF16:
      return AttendBlock<LoadF16, LoadF16>(task);
    case KvType::kBF16:
      return AttendBlock<LoadBF16, LoadBF16>(task);
    case KvType::kF16Q8:
      return AttendBlock<LoadF16, LoadInt8>(task);
  }
}

void RunMeanWeightsTask(const AttentionTask& task) {
  switch (KeptTypeOf(task.job->kv->type())) {
    case KeptType::kF32:
      return MeanWeightsBlock<LoadF32>(task);
    case KeptType::kF16:
      return MeanWeightsBlock<LoadF16>(task);
    case KeptType::kBF16:
      return MeanWeightsBlock<LoadBF16>(task);
  }
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace spa {

HWY_EXPORT(RunAttentionTask);
HWY_EXPORT(RunMeanWeightsTask);

namespace {

// The keys of each block that are not hidden.
std::vector<KeySet> VisibleKeys(size_t num_keys, std::span<const uint8_t> hidden) {
  std::vector<KeySet> visible;
  for (size_t first = 0; first < num_keys; first += kKeyBlock) {
    visible.push_back(KeysBelow(num_keys - first));
  }
  for (size_t key = 0; key < hidden.size(); ++key) {
    if (hidden[key] != 0) visible[key / kKeyBlock] &= ~(KeySet{1} << key % kKeyBlock);
  }
  return visible;
}

}  // namespace

void Attend(std::span<const AttentionJob> jobs, size_t num_heads, ThreadPool& pool) {
  std::vector<AttentionTask> tasks;
  std::vector<AttentionTask> mean_tasks;
  std::vector<Mat<SoftmaxStats>> stats(jobs.size());
  std::vector<std::vector<KeySet>> visible(jobs.size());
  for (size_t j = 0; j < jobs.size(); ++j) {
    const AttentionJob& job = jobs[j];
    const size_t num_kv_heads = job.kv->num_kv_heads();
    SPA_CHECK(num_kv_heads > 0 && num_heads % num_kv_heads == 0 && job.kv->num_rows() > 0);
    SPA_CHECK(job.q.cols == num_heads * job.kv->head_dim() && job.out.cols == job.q.cols);
    SPA_CHECK(job.key_begin.empty() || job.key_begin.size() == job.q.rows);
    SPA_CHECK(job.key_end.empty() || job.key_end.size() == job.q.rows);
    SPA_CHECK(job.hidden.empty() || job.hidden.size() == job.kv->num_rows());
    visible[j] = VisibleKeys(job.kv->num_rows(), job.hidden);
    const bool wants_mean = job.mean_weights.data != nullptr;
    if (wants_mean) stats[j].Resize(job.q.rows, num_heads);

    // Blocks of nearly equal size: 64 queries are 32 and 32.
    const size_t num_queries = job.q.rows * (num_heads / num_kv_heads);
    const size_t num_blocks = (num_queries + kQueryBlock - 1) / kQueryBlock;
    for (size_t kv_head = 0; kv_head < num_kv_heads; ++kv_head) {
      for (size_t block = 0; block < num_blocks; ++block) {
        const size_t first = num_queries * block / num_blocks;
        const size_t end = num_queries * (block + 1) / num_blocks;
        tasks.push_back(
            {&job, num_heads, kv_head, first, end - first, stats[j].data(), visible[j].data()});
      }
    }
    for (size_t first = 0; wants_mean && first < job.q.rows; first += kMeanRows) {
      mean_tasks.push_back({&job, num_heads, 0, first, std::min(kMeanRows, job.q.rows - first),
                            stats[j].data(), visible[j].data()});
    }
  }
  pool.ParallelFor(tasks.size(), [&](size_t i) {
    HWY_DYNAMIC_DISPATCH(RunAttentionTask)(tasks[i]);
  });
  pool.ParallelFor(mean_tasks.size(), [&](size_t i) {
    HWY_DYNAMIC_DISPATCH(RunMeanWeightsTask)(mean_tasks[i]);
  });
}

}  // namespace spa
#endif  // HWY_ONCE
