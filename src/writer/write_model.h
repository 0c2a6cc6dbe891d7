// Models written as GGUF: converted from Hugging Face folders, re-encoded in another type, or made
// of random weights with real dimensions, for benchmarking. Tensors have llama.cpp's names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/model_file.h"

namespace spa {

// The types WriteModel encodes.
const std::vector<DType>& EncodableTypes();

// Writes the model with its matrices in `dtype` (nullopt: as they are stored). Norms, biases and
// routers are F32. As in llama.cpp's files the output head of a 4-bit model is Q6_K, and a matrix
// whose rows a type's blocks do not divide gets Q8_0, or F16 if even that does not fit. Throws
// Error if they do not divide the model's width.
struct WriteOptions {
  std::optional<DType> dtype;
  Progress progress;
};
// Returns the names of the matrices that `dtype` does not fit, with what they got instead.
struct OtherType {
  std::string tensor;
  DType dtype;
};
std::vector<OtherType> WriteModel(const ModelFile& model, const std::filesystem::path& out,
                                  const WriteOptions& options, ThreadPool& pool);

// The true dimensions of a published model. Throws Error naming the shapes there are.
// layers: 0 keeps all.
ModelConfig NamedShape(const std::string& name, size_t layers);

// With `autoregressive` the file says that the same tensors are a causal model of the architecture
// `llama`: what llama.cpp is measured with. This program does not run it.
void WriteSynthetic(const ModelConfig& config, DType dtype, uint64_t seed,
                    const std::filesystem::path& out, const Progress& progress, ThreadPool& pool,
                    bool autoregressive = false);

}  // namespace spa
