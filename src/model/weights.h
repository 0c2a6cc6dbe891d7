// A model's weights in the form the kernels use: matrices packed, norms and biases as float32, the
// embedding left in the file (a step reads a few of its rows).
#pragma once

#include <functional>
#include <vector>

#include "base/matrix.h"
#include "base/thread_pool.h"
#include "base/token.h"
#include "kernels/matmul.h"
#include "model/model_file.h"

namespace spa {

// The feed-forward network of a layer with experts.
struct ExpertWeights {
  PackedMatrix router;                    // [experts, model_dim], float32
  std::vector<float> router_bias;         // [experts]; empty if there is none
  std::vector<float> router_norm;         // [model_dim]; empty: the router sees what experts see
  std::vector<float> scales;              // [experts], of their weights; empty: 1
  std::vector<PackedMatrix> wgate, wup;   // per expert: [expert_dim, model_dim]
  std::vector<PackedMatrix> wdown;        // per expert: [model_dim, expert_dim]
  PackedMatrix shared_wgate, shared_wup;  // [shared_dim, model_dim]; empty if there is none
  PackedMatrix shared_wdown;              // [model_dim, shared_dim]
};

struct LayerWeights {
  std::vector<float> attn_norm;       // [model_dim]
  PackedMatrix wq;                    // [q_dim, model_dim], half-split RoPE layout
  PackedMatrix wk, wv;                // [kv_dim, model_dim]; wv empty if values are keys
  std::vector<float> bq, bk, bv;      // empty if the model has none
  std::vector<float> q_norm, k_norm;  // [head_dim]; empty if the model has none
  PackedMatrix wo;                    // [model_dim, q_dim]
  std::vector<float> ffn_norm;        // [model_dim]
  // [model_dim] each; empty if the model has none (ModelConfig::post_norms, beside_dense).
  std::vector<float> post_attn_norm, post_ffn_norm, post_dense_norm, expert_norm, post_expert_norm;
  float scale = 1.0f, encoder_scale = 1.0f;  // of the layer's output
  PackedMatrix wgate, wup;                   // [ffn_dim, model_dim]; of a dense layer
  PackedMatrix wdown;                        // [model_dim, ffn_dim]
  ExpertWeights experts;                     // of the other layers
};

// Turns what a step expected at a position into something to add to its embedding.
struct ConditionWeights {
  std::vector<float> norm;  // [model_dim]; empty if the model has none
  PackedMatrix wgate, wup;  // [ffn_dim, model_dim]
  PackedMatrix wdown;       // [model_dim, ffn_dim]
};

struct Weights {
  std::vector<LayerWeights> layers;
  ConditionWeights condition;
  std::vector<float> final_norm;      // [model_dim]
  PackedMatrix head;                  // [vocab_rows, model_dim]
  const Tensor* embedding = nullptr;  // [vocab_rows, model_dim], in the model file

  // out: [model_dim]
  void Embed(TokenId id, float* out) const;
  // The mean embedding under softmax(logits).   logits: [vocab_rows], out: [model_dim]
  void EmbedMean(std::span<const float> logits, float* out) const;
  size_t bytes() const;
};

// Called after each packed matrix with the bytes of the file handled so far.
using LoadProgress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// `file` must outlive the weights. Pages of packed tensors are given back to the system, so the
// resident size stays near the packed size.
Weights LoadWeights(const ModelFile& file, ThreadPool& pool, const LoadProgress& progress = {});

// A whole tensor as float32 (rows in half-split order for Wq and Wk).   [rows, cols]
Mat<float> DecodeTensor(const ModelFile& file, TensorRole role, size_t layer, ThreadPool& pool);

}  // namespace spa
