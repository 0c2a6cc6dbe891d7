#include "model/weights.h"

#include "base/error.h"
#include "kernels/block_codec.h"

namespace spa {
namespace {

class Loader {
 public:
  Loader(const ModelFile& file, ThreadPool& pool, const LoadProgress& progress)
      : file_(file), pool_(pool), progress_(progress), total_bytes_(file.tensor_bytes()) {}

  PackedMatrix Matrix(TensorRole role, size_t layer) {
    const Tensor& tensor = file_.Get(role, layer);
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

  std::vector<float> Vector(TensorRole role, size_t layer) {
    const Tensor& tensor = file_.Get(role, layer);
    std::vector<float> values(tensor.cols());
    DecodeRow(tensor.dtype, tensor.bytes.data(), values.size(), values.data());
    // Biases belong to rows of Wq and Wk, so they follow the same order.
    const TensorRole matrix = role == TensorRole::kBq   ? TensorRole::kWq
                              : role == TensorRole::kBk ? TensorRole::kWk
                                                        : role;
    if (const auto order = file_.HalfSplitRowOrder(matrix); !order.empty()) {
      std::vector<float> ordered(values.size());
      for (size_t i = 0; i < order.size(); ++i) ordered[i] = values[order[i]];
      values = std::move(ordered);
    }
    Report(tensor);
    return values;
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

size_t Weights::bytes() const {
  size_t bytes = head.bytes();
  for (const LayerWeights& layer : layers) {
    for (const PackedMatrix* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.wgate,
                                       &layer.wup, &layer.wdown}) {
      bytes += matrix->bytes();
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
    layer.wv = load.Matrix(TensorRole::kWv, i);
    if (config.qkv_bias) {
      layer.bq = load.Vector(TensorRole::kBq, i);
      layer.bk = load.Vector(TensorRole::kBk, i);
      layer.bv = load.Vector(TensorRole::kBv, i);
    }
    layer.wo = load.Matrix(TensorRole::kWo, i);
    layer.ffn_norm = load.Vector(TensorRole::kFfnNorm, i);
    layer.wgate = load.Matrix(TensorRole::kWgate, i);
    layer.wup = load.Matrix(TensorRole::kWup, i);
    layer.wdown = load.Matrix(TensorRole::kWdown, i);
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
