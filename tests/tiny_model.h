// Small random models of both families, written where the test wants them: for rules that hold for
// any weights.
#pragma once

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "file/gguf_writer.h"
#include "model/tensor_names.h"

namespace spa {

inline ModelConfig TinyConfig(const std::string& family) {
  ModelConfig config;
  config.family = family;
  config.num_layers = 4;
  config.model_dim = 32;
  config.num_heads = 4;
  config.num_kv_heads = family == "dream" ? 2 : 4;
  config.head_dim = 8;
  config.ffn_dim = 64;
  config.vocab_rows = 64;
  config.context_length = 128;
  config.qkv_bias = family == "dream";
  config.logit_shift = family == "dream";
  return config;
}

inline void WriteTinyModel(const std::string& name, const std::string& path) {
  const ModelConfig config = TinyConfig(name);
  GgufWriter writer(path);
  writer.AddString("general.architecture", name);
  const auto number = [&](const char* key, size_t value) {
    writer.AddUint32(name + "." + key, static_cast<uint32_t>(value));
  };
  number("block_count", config.num_layers);
  number("context_length", config.context_length);
  number("embedding_length", config.model_dim);
  number("feed_forward_length", config.ffn_dim);
  number("attention.head_count", config.num_heads);
  number("attention.head_count_kv", config.num_kv_heads);
  writer.AddFloat32(name + ".attention.layer_norm_rms_epsilon", 1e-6f);
  writer.AddFloat32(name + ".rope.freq_base", 10000.0f);
  writer.AddBool("diffusion.shift_logits", config.logit_shift);
  writer.AddUint32("tokenizer.ggml.mask_token_id", 63);
  writer.AddUint32("tokenizer.ggml.eos_token_id", 62);
  const std::vector<StoredTensor> tensors = StoredTensors(config, kGgufNames, false);
  for (const StoredTensor& tensor : tensors) {
    writer.DeclareTensor(tensor.name, DType::kF32, tensor.shape);
  }
  writer.BeginData();
  for (size_t t = 0; t < tensors.size(); ++t) {
    const std::vector<uint64_t>& shape = tensors[t].shape;
    size_t count = 1;
    for (const uint64_t extent : shape) count *= extent;
    const RandomStream random(1, t, 0);
    // Large enough that rows differ and attention is not flat.
    const double scale = shape.size() == 2 ? 3.0 / std::sqrt(static_cast<double>(shape[1])) : 0.5;
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      const double noise = scale * (2.0 * random.Uniform(i) - 1.0);
      values[i] = static_cast<float>(shape.size() == 2 ? noise : 1.0 + noise);
    }
    writer.WriteData(std::as_bytes(std::span(values)));
  }
  writer.Finish();
}

// Path of the tiny model of a family, written on first use and removed at exit.
inline const std::string& TinyModel(const std::string& family) {
  struct File {
    explicit File(const std::string& f)
        : path((std::filesystem::temp_directory_path() /
                ("spa-tiny-" + f + "-" + std::to_string(::getpid()) + ".gguf"))
                   .string()) {
      WriteTinyModel(f, path);
    }
    ~File() { std::filesystem::remove(path); }
    std::string path;
  };
  static const File llada("llada"), dream("dream");
  return family == "dream" ? dream.path : llada.path;
}

}  // namespace spa
