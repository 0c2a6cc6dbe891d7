// The model's matrices and vectors by what they do, and how a file stores them: under which names,
// and whether q, k and v, or all experts of a layer, share a tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/config.h"

namespace spa {

enum class TensorRole : uint8_t {
  kEmbedding,
  kFinalNorm,
  kConditionNorm,
  kConditionGate,
  kConditionUp,
  kConditionDown,
  kHead,  // once per model
  kAttnNorm,
  kWq,
  kWk,
  kWv,
  kBq,
  kBk,
  kBv,
  kQNorm,
  kKNorm,
  kWo,
  kFfnNorm,
  kPostAttnNorm,
  kPostFfnNorm,
  kPostDenseNorm,
  kExpertNorm,
  kPostExpertNorm,
  kLayerScale,
  kEncoderScale,  // once per layer
  kWgate,
  kWup,
  kWdown,  // in dense layers
  kRouter,
  kRouterBias,
  kRouterScale,
  kExpertScale,
  kSharedGate,
  kSharedUp,
  kSharedDown,  // in layers with experts
  kExpertGate,
  kExpertUp,
  kExpertDown,    // once per expert
  kWqkv,          // Wq, Wk, Wv as stored
  kExpertGateUp,  // of each expert, one after the other, as stored
};

struct TensorNames {
  // Before the names of a layer's tensors; {} is its number. A name that has a {} itself is whole.
  std::string_view layer;
  // {} in an expert's name is its number; without it all experts of a layer are one tensor.
  std::span<const std::pair<TensorRole, std::string_view>> names;

  // Empty if there is no such tensor.
  std::string Name(TensorRole role, size_t layer_index = 0, size_t expert = 0) const;
};

extern const TensorNames kGgufNames;  // llama.cpp's
extern const TensorNames kQwenNames;  // of Qwen's descendants in Hugging Face folders

struct TensorKey {
  TensorRole role = TensorRole::kEmbedding;
  size_t layer = 0;
  size_t expert = 0;
  bool operator==(const TensorKey&) const = default;
};

// Slowest dimension first.
std::vector<uint64_t> ShapeOf(const ModelConfig& config, TensorRole role, size_t layer);

struct StoredTensor {
  std::string name;
  std::vector<uint64_t> shape;   // of the whole
  std::vector<TensorKey> parts;  // stacked in this order along the slowest dimension

  TensorRole role() const { return parts.front().role; }
};

// Every tensor of a model of this configuration, in the order of the forward pass. `fused_qkv`: q,
// k and v are stored as one.
std::vector<StoredTensor> StoredTensors(const ModelConfig& config, const TensorNames& names,
                                        bool fused_qkv);

}  // namespace spa
