// A model family is one record: which files belong to it, how they are read, what its tensors are
// called, and everything its makers published about running it. docs/adding-a-family.md walks
// through one. Nothing outside model/ asks for a family: the record fills a ModelConfig.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "model/config.h"
#include "model/config_file.h"
#include "model/tensor_names.h"

namespace spa {

struct Family {
  std::string_view name;  // also general.architecture of the GGUF files it writes
  // Which files it reads: "architectures" of a config.json, else its "model_type"; and other names
  // of GGUF architectures.
  std::vector<std::string_view> architectures = {}, model_types = {}, gguf_names = {};
  // What all its models share. The readers fill in the rest.
  ModelConfig base = {};
  // Texts its mask token has in tokenizers, and its id where the files of published models do not
  // say.
  std::vector<std::string_view> mask_texts = {};
  TokenId mask_id = -1;
  const TensorNames* folder_names = nullptr;
  void (*read_folder)(const JsonConfig& json, ModelConfig& config) = nullptr;
  void (*read_gguf)(const GgufConfig& gguf, ModelConfig& config) = nullptr;
  // Published models, for models of random weights: the dimensions each adds to `base`.
  struct Shape {
    std::string_view name;
    void (*set)(ModelConfig& config);
  };
  std::vector<Shape> shapes = {};
  // The special tokens of those, and how their tokenizers split ("tokenizer.ggml.pre").
  std::vector<std::pair<TokenId, std::string_view>> tokens = {};
  std::string_view pre = "qwen2";
  // Its GGUF files: q, k and v are one tensor; RoPE pairs are neighbours; text gets a BOS.
  bool fused_qkv = false;
  bool interleaved_qk = false;
  bool adds_bos = false;
  // Beginnings of tensor names that belong to other parts of the model than text.
  std::vector<std::string_view> other_tensors = {};
};

// All of them, built in and added, in no particular order.
const std::vector<const Family*>& Families();
// For programs that bring their own. Call before a model is opened; the record must stay.
void AddFamily(const Family& family);
// Throws Error if there is none.
const Family& FamilyNamed(std::string_view name);
// The dimensions of a published model. Throws Error naming those there are.
ModelConfig ShapeNamed(std::string_view name);

}  // namespace spa
