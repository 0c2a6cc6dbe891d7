// The only list of tensor names, per file format and family, with the shapes they must have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace spa {

enum class TensorRole {
  kEmbedding, kFinalNorm, kHead,                                   // once per model
  kAttnNorm, kWq, kWk, kWv, kBq, kBk, kBv, kWo,                    // once per layer
  kFfnNorm, kWgate, kWup, kWdown,
};

enum class NameScheme { kGguf, kHfLlada, kHfDream };

std::string TensorName(NameScheme scheme, TensorRole role, size_t layer = 0);

struct ExpectedTensor {
  TensorRole role;
  size_t layer;
  std::vector<uint64_t> shape;  // slowest first
};

// Every tensor a model of this configuration has, in the order of the forward pass.
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config);

}  // namespace spa
