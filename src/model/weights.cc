#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/block_codec.h"

namespace spa {
namespace {

// Where the half-precision scales of a quantised block are: nothing else in it can fail to be a
// number.
std::vector<size_t> ScaleOffsets(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ5_0:
      return {0};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208};
    case DType::kF16:
    case DType::kBF16:
      return {0};
    case DType::kF32:
      return {2};
  }
  return {};
}

bool AllNumbers(const Tensor& tensor) {
  // All exponent bits set; of float32 and bfloat16 the upper half decides.
  const bool wide = tensor.dtype == DType::kF32 || tensor.dtype == DType::kBF16;
  const uint16_t exponent = wide ? 0x7f80 : 0x7c00;
  const size_t block_bytes = Info(tensor.dtype).block_bytes;
  for (const size_t offset : ScaleOffsets(tensor.dtype)) {
    for (size_t i = offset; i < tensor.bytes.size(); i += block_bytes) {
      uint16_t half;
      std::memcpy(&half, tensor.bytes.data() + i, sizeof(half));
      if ((half & exponent) == exponent) return false;
    }
  }
  return true;
}

class Loader {
 public:
  Loader(const ModelFile& file, ThreadPool& pool, const LoadProgress& progress)
      : file_(file), pool_(pool), progress_(progress), total_bytes_(file.tensor_bytes()) {}

  PackedMatrix Matrix(TensorRole role, size_t layer, size_t expert = 0) {
    const Tensor& tensor = file_.Get(role, layer, expert);
    const std::vector<uint32_t> order = file_.HalfSplitRowOrder(role);
    PackedMatrix packed({.dtype = tensor.dtype,
                         .rows = tensor.rows(),
                         .cols = tensor.cols(),
                         .data = tensor.bytes.data(),
                         .row_order = order},
                        pool_);
    file_.tensors().Release(tensor);
    Report(tensor);
    return packed;
  }

  // A small tensor as it is: norms, biases, routers.
  std::vector<float> Vector(TensorRole role, size_t layer) {
    const Tensor& tensor = file_.Get(role, layer);
    std::vector<float> values(tensor.num_elements());
    const size_t cols = tensor.cols(), row_bytes = RowBytes(tensor.dtype, cols);
    for (size_t row = 0; row < tensor.rows(); ++row) {
      DecodeRow(tensor.dtype, tensor.bytes.data() + row * row_bytes, cols, &values[row * cols]);
    }
    // Biases belong to rows of Wq and Wk, so they follow the same order.
    const TensorRole matrix = role == TensorRole::kBq   ? TensorRole::kWq
                              : role == TensorRole::kBk ? TensorRole::kWk
                                                        : role;
    if (const auto order = file_.HalfSplitRowOrder(matrix); !order.empty()) {
      std::vector<float> ordered(values.size());
      for (size_t i = 0; i < order.size(); ++i) ordered[i] = values[order[i]];
      values = std::move(ordered);
    }
    CheckNumbers(tensor);
    Report(tensor);
    return values;
  }

  ExpertWeights Experts(const ExpertConfig& config, size_t layer) {
    ExpertWeights experts;
    const std::vector<float> router = Vector(TensorRole::kRouter, layer);
    experts.router = PackedMatrix({.dtype = DType::kF32,
                                   .rows = config.count,
                                   .cols = router.size() / config.count,
                                   .data = reinterpret_cast<const std::byte*>(router.data())},
                                  pool_);
    if (config.scaled) {
      experts.router_norm = Vector(TensorRole::kRouterScale, layer);
      const auto cols = static_cast<float>(experts.router_norm.size());
      for (float& gain : experts.router_norm) gain /= std::sqrt(cols);
      experts.scales = Vector(TensorRole::kExpertScale, layer);
    }
    if (config.bias) experts.router_bias = Vector(TensorRole::kRouterBias, layer);
    if (config.shared_dim > 0) {
      experts.shared_wgate = Matrix(TensorRole::kSharedGate, layer);
      experts.shared_wup = Matrix(TensorRole::kSharedUp, layer);
      experts.shared_wdown = Matrix(TensorRole::kSharedDown, layer);
    }
    const auto each = [&](TensorRole role, std::vector<PackedMatrix>& matrices) {
      matrices.reserve(config.count);
      for (size_t e = 0; e < config.count; ++e) {
        CheckNumbers(file_.Get(role, layer, e));
        matrices.push_back(Matrix(role, layer, e));
      }
    };
    each(TensorRole::kExpertGate, experts.wgate);
    each(TensorRole::kExpertUp, experts.wup);
    each(TensorRole::kExpertDown, experts.wdown);
    return experts;
  }

  // A NaN would spread through all rows, and a router would choose no expert.
  void CheckNumbers(const Tensor& tensor) const {
    if (!AllNumbers(tensor)) {
      throw Error("{}: the tensor {} holds a value that is not a number", file_.where(),
                  tensor.name);
    }
  }

  void Report(const Tensor& tensor) {
    done_bytes_ += tensor.bytes.size();
    if (progress_) progress_(done_bytes_, total_bytes_);
  }

 private:
  const ModelFile& file_;
  ThreadPool& pool_;
  const LoadProgress& progress_;
  uint64_t total_bytes_;
  uint64_t done_bytes_ = 0;
};

}  // namespace

void Weights::Embed(TokenId id, float* out) const {
  const size_t cols = embedding->cols();
  DecodeRow(embedding->dtype,
            embedding->bytes.data() + static_cast<size_t>(id) * RowBytes(embedding->dtype, cols),
            cols, out);
}

void Weights::EmbedMean(std::span<const float> logits, float* out) const {
  const size_t cols = embedding->cols();
  const float largest = *std::ranges::max_element(logits);
  std::vector<float> row(cols);
  std::fill_n(out, cols, 0.0f);
  double sum = 0.0;
  for (size_t id = 0; id < logits.size(); ++id) {
    const float weight = std::exp(logits[id] - largest);
    if (weight == 0.0f) continue;
    sum += weight;
    Embed(static_cast<TokenId>(id), row.data());
    for (size_t c = 0; c < cols; ++c) out[c] += weight * row[c];
  }
  for (size_t c = 0; c < cols; ++c) out[c] = static_cast<float>(out[c] / sum);
}

size_t Weights::bytes() const {
  size_t bytes =
      head.bytes() + condition.wgate.bytes() + condition.wup.bytes() + condition.wdown.bytes();
  for (const LayerWeights& layer : layers) {
    for (const PackedMatrix* matrix :
         {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.wgate, &layer.wup, &layer.wdown}) {
      bytes += matrix->bytes();
    }
    const ExpertWeights& experts = layer.experts;
    bytes += experts.router.bytes() + experts.shared_wgate.bytes() + experts.shared_wup.bytes() +
             experts.shared_wdown.bytes();
    for (const auto* matrices : {&experts.wgate, &experts.wup, &experts.wdown}) {
      for (const PackedMatrix& matrix : *matrices) bytes += matrix.bytes();
    }
  }
  return bytes;
}

Weights LoadWeights(const ModelFile& file, ThreadPool& pool, const LoadProgress& progress) {
  Loader load(file, pool, progress);
  const ModelConfig& config = file.config();
  Weights weights;
  weights.embedding = &file.Get(TensorRole::kEmbedding);
  weights.layers.resize(config.num_layers);
  for (size_t i = 0; i < config.num_layers; ++i) {
    LayerWeights& layer = weights.layers[i];
    layer.attn_norm = load.Vector(TensorRole::kAttnNorm, i);
    layer.wq = load.Matrix(TensorRole::kWq, i);
    layer.wk = load.Matrix(TensorRole::kWk, i);
    if (!config.shape(i).values_are_keys) layer.wv = load.Matrix(TensorRole::kWv, i);
    if (config.qkv_bias) {
      layer.bq = load.Vector(TensorRole::kBq, i);
      layer.bk = load.Vector(TensorRole::kBk, i);
      layer.bv = load.Vector(TensorRole::kBv, i);
    }
    if (config.qk_norm) {
      layer.q_norm = load.Vector(TensorRole::kQNorm, i);
      layer.k_norm = load.Vector(TensorRole::kKNorm, i);
    }
    layer.wo = load.Matrix(TensorRole::kWo, i);
    layer.ffn_norm = load.Vector(TensorRole::kFfnNorm, i);
    if (config.post_norms) {
      layer.post_attn_norm = load.Vector(TensorRole::kPostAttnNorm, i);
      layer.post_ffn_norm = load.Vector(TensorRole::kPostFfnNorm, i);
    }
    if (config.layer_scales) {
      layer.scale = load.Vector(TensorRole::kLayerScale, i)[0];
      layer.encoder_scale = load.Vector(TensorRole::kEncoderScale, i)[0];
    }
    if (config.has_experts(i)) {
      if (config.experts.beside_dense) {
        layer.post_dense_norm = load.Vector(TensorRole::kPostDenseNorm, i);
        layer.expert_norm = load.Vector(TensorRole::kExpertNorm, i);
        layer.post_expert_norm = load.Vector(TensorRole::kPostExpertNorm, i);
      }
      layer.experts = load.Experts(config.experts, i);
    }
    if (!config.has_dense(i)) continue;
    layer.wgate = load.Matrix(TensorRole::kWgate, i);
    layer.wup = load.Matrix(TensorRole::kWup, i);
    layer.wdown = load.Matrix(TensorRole::kWdown, i);
  }
  if (config.self_conditioning) {
    weights.condition.norm = load.Vector(TensorRole::kConditionNorm, 0);
    weights.condition.wgate = load.Matrix(TensorRole::kConditionGate, 0);
    weights.condition.wup = load.Matrix(TensorRole::kConditionUp, 0);
    weights.condition.wdown = load.Matrix(TensorRole::kConditionDown, 0);
  }
  weights.final_norm = load.Vector(TensorRole::kFinalNorm, 0);
  weights.head = load.Matrix(TensorRole::kHead, 0);
  return weights;
}

Mat<float> DecodeTensor(const ModelFile& file, TensorRole role, size_t layer, ThreadPool& pool) {
  const Tensor& tensor = file.Get(role, layer);
  const std::vector<uint32_t> order = file.HalfSplitRowOrder(role);
  const size_t row_bytes = RowBytes(tensor.dtype, tensor.cols());
  Mat<float> matrix(tensor.rows(), tensor.cols());
  pool.ParallelFor(tensor.rows(), [&](size_t row) {
    const size_t stored = order.empty() ? row : order[row];
    DecodeRow(tensor.dtype, tensor.bytes.data() + stored * row_bytes, tensor.cols(),
              matrix.Row(row));
  });
  return matrix;
}

}  // namespace spa
