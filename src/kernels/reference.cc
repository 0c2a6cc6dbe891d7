#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "kernels/block_codec.h"
#include "kernels/block_layout.h"

namespace spa::reference {

void MatMul(MatView<const float> x, const MatrixSource& w, const float* bias, MatView<float> y) {
  std::vector<float> weights(w.cols);
  for (size_t o = 0; o < w.rows; ++o) {
    DecodeRow(w.dtype, w.Row(o), w.cols, weights.data());
    for (size_t i = 0; i < x.rows; ++i) {
      double sum = 0.0;
      for (size_t c = 0; c < w.cols; ++c) sum += static_cast<double>(x.Row(i)[c]) * weights[c];
      y.Row(i)[o] = static_cast<float>(sum + (bias ? bias[o] : 0.0f));
    }
  }
}

void RoundActivations(MatView<const float> x, size_t scale_span, MatView<float> rounded) {
  for (size_t i = 0; i < x.rows; ++i) {
    for (size_t first = 0; first < x.cols; first += scale_span) {
      const size_t end = std::min(first + scale_span, x.cols);
      float max = 0.0f;
      for (size_t c = first; c < end; ++c) max = std::max(max, std::abs(x.Row(i)[c]));
      const bool is_zero = !(max > 1e-30f);
      float scale = is_zero ? 0.0f : max / 127.0f;
      if (scale_span == 32) {
        std::byte half[2];
        EncodeRow(DType::kF16, &scale, 1, half);
        DecodeRow(DType::kF16, half, 1, &scale);
      }
      const float inverse = is_zero ? 0.0f : 127.0f / max;
      for (size_t c = first; c < end; ++c) {
        rounded.Row(i)[c] = scale * std::nearbyint(x.Row(i)[c] * inverse);
      }
    }
  }
}

void RoundValues(MatView<const float> v, size_t head_dim, MatView<float> rounded) {
  for (size_t i = 0; i < v.rows; ++i) {
    for (size_t first = 0; first < v.cols; first += head_dim) {
      const float* head = v.Row(i) + first;
      float largest = 0.0f;
      bool has_nan = false;
      for (size_t d = 0; d < head_dim; ++d) {
        has_nan |= std::isnan(head[d]);
        largest = std::max(largest, std::min(std::abs(head[d]), kMaxHalf));
      }
      const bool is_zero = !(largest > 1e-30f);
      const float scale = has_nan ? NAN : is_zero ? 0.0f : largest / 127.0f;
      const float inverse = is_zero || has_nan ? 0.0f : 127.0f / largest;
      for (size_t d = 0; d < head_dim; ++d) {
        const float value = std::clamp(head[d], -largest, largest);
        rounded.Row(i)[first + d] = scale * std::nearbyint(value * inverse);
      }
    }
  }
}

void Attend(const AttentionJob& job, MatView<const float> k, MatView<const float> v,
            size_t num_heads, size_t head_dim) {
  const size_t heads_per_kv = num_heads / (k.cols / head_dim);
  const double scale = job.score_scale != 0.0f ? static_cast<double>(job.score_scale)
                                               : 1.0 / std::sqrt(static_cast<double>(head_dim));
  const auto sees = [&](size_t i, size_t key) {
    return (job.key_begin.empty() || key >= job.key_begin[i]) &&
           (job.key_end.empty() || key < job.key_end[i]) &&
           (job.hidden.empty() || job.hidden[key] == 0);
  };
  std::vector<double> mean(k.rows);
  for (size_t i = 0; i < job.q.rows; ++i) {
    std::vector<size_t> keys;
    for (size_t key = 0; key < k.rows; ++key) {
      if (sees(i, key)) keys.push_back(key);
    }
    std::vector<double> weights(keys.size());
    std::fill(mean.begin(), mean.end(), 0.0);
    for (size_t head = 0; head < num_heads; ++head) {
      const float* query = job.q.Row(i) + head * head_dim;
      const size_t kv_offset = head / heads_per_kv * head_dim;
      double max = -INFINITY;
      for (size_t j = 0; j < keys.size(); ++j) {
        double score = 0.0;
        for (size_t d = 0; d < head_dim; ++d) {
          score += static_cast<double>(query[d]) * k.Row(keys[j])[kv_offset + d];
        }
        weights[j] = score * scale;
        max = std::max(max, weights[j]);
      }
      for (double& weight : weights) weight = std::exp(weight - max);
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (double& weight : weights) weight /= sum;
      for (size_t d = 0; d < head_dim; ++d) {
        double value = 0.0;
        for (size_t j = 0; j < keys.size(); ++j) {
          value += weights[j] * v.Row(keys[j])[kv_offset + d];
        }
        job.out.Row(i)[head * head_dim + d] = static_cast<float>(value);
      }
      for (size_t j = 0; j < keys.size(); ++j) mean[keys[j]] += weights[j];
    }
    if (job.mean_weights.data == nullptr) continue;
    for (size_t key = 0; key < k.rows; ++key) {
      job.mean_weights.Row(i)[key] = static_cast<float>(mean[key] / static_cast<double>(num_heads));
    }
  }
}

namespace {

// y = x / rms(x) * gain
void RmsNormVector(const float* x, size_t n, const float* gain, float epsilon, float* y) {
  double sum = 0.0;
  for (size_t c = 0; c < n; ++c) sum += static_cast<double>(x[c]) * x[c];
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(n) + epsilon);
  for (size_t c = 0; c < n; ++c) y[c] = static_cast<float>(x[c] * scale * (gain ? gain[c] : 1.0f));
}

}  // namespace

void RmsNorm(MatView<const float> x, std::span<const uint32_t> rows, const float* gain,
             float epsilon, MatView<float> y) {
  for (size_t i = 0; i < rows.size(); ++i) {
    RmsNormVector(x.Row(rows[i]), x.cols, gain, epsilon, y.Row(i));
  }
}

void RmsNormHeads(MatView<float> rows, size_t head_dim, const float* gain, float epsilon) {
  for (size_t i = 0; i < rows.rows; ++i) {
    for (float* head = rows.Row(i); head < rows.Row(i) + rows.cols; head += head_dim) {
      RmsNormVector(head, head_dim, gain, epsilon, head);
    }
  }
}

void Rope(MatView<float> x, std::span<const uint32_t> positions, size_t head_dim,
          const RopeTable& table) {
  const size_t half = table.rope_dim() / 2;
  for (size_t i = 0; i < x.rows; ++i) {
    const float* cosine = table.Cos(positions[i]);
    const float* sine = table.Sin(positions[i]);
    for (float* head = x.Row(i); head < x.Row(i) + x.cols; head += head_dim) {
      for (size_t j = 0; j < half; ++j) {
        const double a = head[j];
        const double b = head[j + half];
        head[j] = static_cast<float>(a * cosine[j] - b * sine[j]);
        head[j + half] = static_cast<float>(b * cosine[j] + a * sine[j]);
      }
    }
  }
}

void SwiGlu(MatView<float> gate, MatView<const float> up) {
  for (size_t i = 0; i < gate.rows; ++i) {
    for (size_t c = 0; c < gate.cols; ++c) {
      const double g = gate.Row(i)[c];
      gate.Row(i)[c] = static_cast<float>(g / (1.0 + std::exp(-g)) * up.Row(i)[c]);
    }
  }
}

void GeGlu(MatView<float> gate, MatView<const float> up) {
  for (size_t i = 0; i < gate.rows; ++i) {
    for (size_t c = 0; c < gate.cols; ++c) {
      const double g = gate.Row(i)[c];
      const double z = std::sqrt(2.0 / std::numbers::pi) * (g + 0.044715 * g * g * g);
      gate.Row(i)[c] = static_cast<float>(0.5 * g * (1.0 + std::tanh(z)) * up.Row(i)[c]);
    }
  }
}

void CosineRows(MatView<const float> a, MatView<const float> b, std::span<const uint32_t> rows,
                std::span<float> out) {
  for (size_t i = 0; i < rows.size(); ++i) {
    double ab = 0.0, aa = 0.0, bb = 0.0;
    for (size_t c = 0; c < a.cols; ++c) {
      const double x = a.Row(i)[c];
      const double y = b.Row(rows[i])[c];
      ab += x * y;
      aa += x * x;
      bb += y * y;
    }
    out[i] = aa == 0.0 || bb == 0.0 ? 0.0f : static_cast<float>(ab / std::sqrt(aa * bb));
  }
}

std::vector<uint32_t> SmallestK(std::span<const float> values, size_t k) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto key = [&](uint32_t i) { return std::isnan(values[i]) ? -INFINITY : values[i]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t i, uint32_t j) { return key(i) < key(j); });
  order.resize(std::min(k, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

LogitStats ComputeLogitStats(std::span<const float> logits) {
  LogitStats stats;
  if (logits.empty()) return stats;
  stats.argmax =
      static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  stats.max = logits[stats.argmax];
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - stats.max);
  stats.log_sum_exp = stats.max + std::log(sum);
  return stats;
}

}  // namespace spa::reference
