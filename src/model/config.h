// What a model is, as numbers: the differences between LLaDA and Dream, and between the file formats
// that carry them, end here. Read from GGUF metadata or from a Hugging Face config.json; every value
// has been checked for sense.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "base/token.h"
#include "file/gguf.h"

namespace spa {

enum class Family { kLlada, kDream };

struct ModelConfig {
  Family family = Family::kLlada;
  std::string name;          // for people: "LLaDA-8B-Instruct", or the file's name
  size_t num_layers = 0;
  size_t model_dim = 0;      // width of the residual stream
  size_t num_heads = 0;      // query heads
  size_t num_kv_heads = 0;   // divides num_heads
  size_t head_dim = 0;
  size_t ffn_dim = 0;
  size_t vocab_rows = 0;     // rows of the embedding and of the output head
  size_t context_length = 0;
  float norm_epsilon = 0.0f;
  double rope_theta = 0.0;
  bool qkv_bias = false;
  bool tied_head = false;    // the output head is the embedding
  bool logit_shift = false;  // position p is predicted by row p - 1 (Dream)
  // The rows of Wq and Wk are stored so that RoPE pairs are neighbours (llama.cpp's `llada` files).
  bool interleaved_qk = false;
  TokenId mask_id = 0;
  std::optional<TokenId> eos_id, bos_id, pad_id;
  // The canvas and the blocks its makers decode it with, if they say so.
  std::optional<size_t> gen_length, block_length;
  // SPA-Cache's budget for it: peak layer, and the ratios at the peak, the first and the last layer.
  std::optional<std::array<double, 4>> spa_budget;

  size_t q_dim() const { return num_heads * head_dim; }
  size_t kv_dim() const { return num_kv_heads * head_dim; }
};

extern const std::array<const char*, 4> kBudgetKeys;  // of spa_budget in GGUF metadata

std::string_view FamilyName(Family family);  // "llada", "dream"

ModelConfig ConfigFromGguf(const GgufFile& file);
ModelConfig ConfigFromFolder(const std::filesystem::path& folder);

// Throws Error naming the number that makes no sense. `where` is the file, for the message.
void ValidateConfig(const ModelConfig& config, const std::string& where);

}  // namespace spa
