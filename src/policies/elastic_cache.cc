#include "policies/elastic_cache.h"

#include <algorithm>
#include <cmath>

#include "kernels/rows.h"

namespace spa {
namespace {

// The attention weights of one query row, head by head.   out: [heads, num_rows]
void HeadWeights(const float* q, size_t num_heads, const KvCache& kv, Mat<float>& out) {
  const size_t head_dim = kv.head_dim(), group = num_heads / kv.num_kv_heads();
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  std::vector<float> key(kv.num_kv_heads() * head_dim);
  out.Resize(num_heads, kv.num_rows());
  for (size_t row = 0; row < kv.num_rows(); ++row) {
    kv.LoadKey(row, key.data());
    for (size_t head = 0; head < num_heads; ++head) {
      const float* a = q + head * head_dim;
      const float* b = key.data() + head / group * head_dim;
      float dot = 0.0f;
      for (size_t i = 0; i < head_dim; ++i) dot += a[i] * b[i];
      out.Row(head)[row] = dot * scale;
    }
  }
  for (size_t head = 0; head < num_heads; ++head) {
    const std::span<float> weights(out.Row(head), kv.num_rows());
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
  open_ = MaskedRows(step);
  const std::span<const uint32_t> open = open_;
  window_ = PredictingRows(open.first(std::min(open.size(), options_.beta)), logit_shift_);
  if (step.step == 0) {
    rows_ = RowSet::All(step.num_rows());
    return rows_;
  }
  const RowSet computed =
      options_.block_caching ? window_ : PredictingRows(open_, logit_shift_);
  rows_ = tracked_.Union(CommittedRows(step)).Union(computed).Union(step.wanted);
  return rows_;
}

bool ElasticPolicy::Testing(size_t layer) const {
  return options_.gamma > 0.0 && !tracked_.empty() && layer + 1 < layers_.size() &&
         rows_.size() < layers_[layer].q.rows();
}

LayerPlan ElasticPolicy::PlanLayer(LayerView& view) {
  LayerState& state = layers_[view.layer];
  const size_t num_rows = view.step->num_rows();
  if (state.q.rows() == 0) {  // the first step: all rows
    state.q.Resize(num_rows, view.config->q_dim());
    state.input.Resize(num_rows, view.config->model_dim);
  }
  // After a drift the layer restarts from the inputs of last time, where they were not renewed.
  for (const uint32_t row : rows_.Without(*view.live)) {
    std::copy_n(state.input.Row(row), state.input.cols(), view.x.Row(row));
  }
  for (const uint32_t row : rows_) {
    std::copy_n(view.x.Row(row), state.input.cols(), state.input.Row(row));
  }
  if (Testing(view.layer)) {  // while the caches are still those of the last step
    old_weights_.resize(tracked_.size());
    view.pool->ParallelFor(tracked_.size(), [&](size_t i) {
      HeadWeights(state.q.Row(tracked_[i]), num_heads_, *view.kv, old_weights_[i]);
    });
  }
  return {.k_rows = rows_, .v_rows = rows_, .out_rows = rows_, .live = rows_};
}

void ElasticPolicy::AfterAttention(const AttentionView& view) {
  LayerState& state = layers_[view.layer];
  TrackMostAttended(view);
  ScatterRows(view.q, *view.out_rows, state.q.View(), *view.pool);
  if (Testing(view.layer) && Similarity(view) < options_.gamma) {
    rows_ = RowSet::All(state.q.rows());
  }
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
  next_tracked_ = next_tracked_.Union(
      RowSet(SmallestK(received, std::min(options_.track, num_rows))));
}

double ElasticPolicy::Similarity(const AttentionView& view) const {
  const Mat<float>& q = layers_[view.layer].q;
  std::vector<double> similarity(tracked_.size());
  view.pool->ParallelFor(tracked_.size(), [&](size_t i) {
    const Mat<float>& old_weights = old_weights_[i];
    Mat<float> weights;
    HeadWeights(q.Row(tracked_[i]), num_heads_, *view.kv, weights);
    const size_t heads = weights.rows(), keys = weights.cols();
    const auto at = [&](const Mat<float>& map) {
      return [&map, by_key = options_.by_key](size_t a, size_t b) {
        return by_key ? map.Row(a)[b] : map.Row(b)[a];
      };
    };
    similarity[i] = options_.by_key
                        ? MeanCosine(heads, keys, at(old_weights), at(weights))
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
  for (const LayerState& layer : layers_) bytes += layer.input.bytes() + layer.q.bytes();
  return bytes;
}

PolicyFactory MakeElastic(OptionReader& reader, const PolicyContext& context) {
  const ModelConfig config = context.file->config();
  ElasticOptions options;
  options.beta = reader.Count("beta", config.cache.elastic_beta, 1, 1 << 20);
  options.gamma = reader.Number("gamma", options.gamma, 0.0, 2.0);
  options.track = reader.Count("track", options.track, 0, 1 << 20);
  options.block_caching = reader.Flag("block-caching", options.block_caching);
  options.by_key = reader.Choice("similarity", 0, {"keys", "heads"}) == 0;
  return [options, config] { return std::make_unique<ElasticPolicy>(options, config); };
}

}  // namespace spa
