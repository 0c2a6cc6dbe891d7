#include "policies/elastic_cache.h"

#include <algorithm>
#include <cmath>

#include "kernels/rows.h"

namespace spa {
namespace {

// The attention weights of one kept query over some keys, head by head.   out: [heads, rows]
void HeadWeights(const KeptRows& kept_q, uint32_t row, size_t num_heads, const KvCache& kv,
                 const RowSet& rows, Mat<float>& out) {
  const size_t head_dim = kv.head_dim(), group = num_heads / kv.num_kv_heads();
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  std::vector<float> q(num_heads * head_dim), key(kv.num_kv_heads() * head_dim);
  kept_q.Load(row, q.data());
  out.Resize(num_heads, rows.size());
  for (size_t place = 0; place < rows.size(); ++place) {
    kv.LoadKey(rows[place], key.data());
    for (size_t head = 0; head < num_heads; ++head) {
      const float* a = q.data() + head * head_dim;
      const float* b = key.data() + head / group * head_dim;
      float dot = 0.0f;
      for (size_t i = 0; i < head_dim; ++i) dot += a[i] * b[i];
      out.Row(head)[place] = dot * scale;
    }
  }
  for (size_t head = 0; head < num_heads; ++head) {
    const std::span<float> weights(out.Row(head), rows.size());
    const float largest = *std::ranges::max_element(weights);
    float sum = 0.0f;
    for (float& weight : weights) sum += weight = std::exp(weight - largest);
    for (float& weight : weights) weight /= sum;
  }
}

// Mean cosine of the vectors a(i, .) and b(i, .), i < count.
template <typename Value>
double MeanCosine(size_t count, size_t length, const Value& a, const Value& b) {
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i) {
    double dot = 0.0, aa = 0.0, bb = 0.0;
    for (size_t j = 0; j < length; ++j) {
      const double x = a(i, j), y = b(i, j);
      dot += x * y;
      aa += x * x;
      bb += y * y;
    }
    if (aa > 0.0 && bb > 0.0) sum += dot / std::sqrt(aa * bb);
  }
  return sum / static_cast<double>(count);
}

}  // namespace

RowSet ElasticPolicy::BeginStep(const StepInput& step) {
  all_ = step.visible;
  known_ = all_.Without(step.never_computed);
  open_ = step.OpenRows();
  const std::span<const uint32_t> open = open_;
  const size_t size = options_.block_caching ? std::min(open.size(), options_.beta) : open.size();
  window_ = step.RowsOf(open.first(size)).Intersect(all_);
  if (step.step == 0) {
    rows_ = all_;
    return rows_;
  }
  rows_ = tracked_.Union(step.changed)
              .Union(window_)
              .Union(step.wanted)
              .Union(step.never_computed)
              .Intersect(all_);
  return rows_;
}

bool ElasticPolicy::Testing(size_t layer) const {
  return options_.gamma > 0.0 && !tracked_.empty() && layer + 1 < num_layers_ &&
         rows_.size() < all_.size();
}

LayerPlan ElasticPolicy::PlanLayer(LayerView& view) {
  if (Testing(view.layer)) {  // keys and values are still those of the last step
    old_weights_.resize(tracked_.size());
    view.pool->ParallelFor(tracked_.size(), [&](size_t i) {
      HeadWeights(*view.kept_q, tracked_[i], num_heads_, *view.kv, known_, old_weights_[i]);
    });
  }
  return LayerPlan::Of(rows_);
}

std::optional<RowSet> ElasticPolicy::AfterAttention(const AttentionView& view) {
  TrackMostAttended(view);
  // After a drift the next layers run all rows, from their kept inputs.
  if (Testing(view.layer) && Similarity(view) < options_.gamma) rows_ = all_;
  return {};
}

void ElasticPolicy::TrackMostAttended(const AttentionView& view) {
  const size_t num_rows = view.mean_weights.cols;
  std::vector<float> received(num_rows, 0.0f);  // negative: SmallestK finds the largest
  for (const uint32_t place : view.out_rows->PlacesOf(window_)) {
    for (size_t row = 0; row < num_rows; ++row) {
      received[row] -= view.mean_weights.Row(place)[row];
    }
  }
  for (const uint32_t row : open_) received[row] = 0.0f;
  next_tracked_ =
      next_tracked_.Union(RowSet(SmallestK(received, std::min(options_.track, num_rows))));
}

double ElasticPolicy::Similarity(const AttentionView& view) const {
  std::vector<double> similarity(tracked_.size());
  view.pool->ParallelFor(tracked_.size(), [&](size_t i) {
    const Mat<float>& old_weights = old_weights_[i];
    Mat<float> weights;
    HeadWeights(*view.kept_q, tracked_[i], num_heads_, *view.kv, known_, weights);
    const size_t heads = weights.rows(), keys = weights.cols();
    const auto at = [&](const Mat<float>& map) {
      return [&map, by_key = options_.by_key](size_t a, size_t b) {
        return by_key ? map.Row(a)[b] : map.Row(b)[a];
      };
    };
    similarity[i] = options_.by_key ? MeanCosine(heads, keys, at(old_weights), at(weights))
                                    : MeanCosine(keys, heads, at(old_weights), at(weights));
  });
  double sum = 0.0;
  for (const double s : similarity) sum += s;
  return sum / static_cast<double>(similarity.size());
}

void ElasticPolicy::EndStep(std::span<const uint32_t>, std::span<const float>) {
  tracked_ = std::exchange(next_tracked_, RowSet());
}

size_t ElasticPolicy::bytes() const {
  size_t bytes = 0;
  for (const Mat<float>& weights : old_weights_) bytes += weights.bytes();
  return bytes;
}

size_t ElasticPolicy::BytesFor(const ModelConfig& config, size_t num_rows,
                               size_t /*kept_rows*/) const {
  const size_t tracked = std::min(options_.track * config.num_layers, num_rows);
  return tracked * config.num_heads * num_rows * sizeof(float);
}

std::vector<OptionInfo> ElasticOptionTable() {
  return {
      OptionInfo::Count("beta", 1, 1 << 20, "16, Dream 32", "Open positions in the window"),
      OptionInfo::Number("gamma", 0, 2, "0.9",
                         "Refresh the later layers when a tracked row's attention is less similar "
                         "than this; 0: never"),
      OptionInfo::Count("track", 0, 1 << 20, "1", "Tracked rows per layer"),
      OptionInfo::Flag("block-caching", "on",
                       "Compute only the window's open rows; off: all open rows"),
      OptionInfo::Choice("similarity", {"keys", "heads"}, "keys",
                         "Compare attention over keys (paper) or over heads (the authors' code)"),
  };
}

PolicyFactory MakeElastic(OptionReader& reader, const PolicyContext& context) {
  const ModelConfig config = context.file->config();
  ElasticOptions options;
  options.beta = reader.Count("beta", config.cache.elastic_beta);
  options.gamma = reader.Number("gamma", options.gamma);
  options.track = reader.Count("track", options.track);
  options.block_caching = reader.Flag("block-caching", options.block_caching);
  options.by_key = reader.Choice("similarity", 0) == 0;
  return [options, config] { return std::make_unique<ElasticPolicy>(options, config); };
}

}  // namespace spa
