// Autoregressive models turned into diffusion models (dllm-hub): Qwen3-0.6B, Qwen2.5-Coder-0.5B and
// Llama 3.2, each trained with full attention (mdlm) or in blocks (bd3lm).
#include "model/family.h"

namespace spa {
namespace {

constexpr size_t kBlockLength = 32;

// Only a folder's name tells the two trainings apart.
void SetAttention(ModelConfig& config) {
  if (config.name.find("bd3lm") == std::string::npos) return;
  config.attention = {.kind = AttentionKind::kBlocks,
                      .block_length = kBlockLength,
                      .origin = BlockOrigin::kPromptEnd};
}

void ReadFolder(const JsonConfig& json, ModelConfig& config) {
  ReadQwenFolder(json, config);
  SetAttention(config);
}

void ReadGguf(const GgufConfig& gguf, ModelConfig& config) {
  ReadLlamaGguf(gguf, config);
  SetAttention(config);
}

constexpr DecodeDefaults kDecode = {
    .gen_length = 128, .block_length = kBlockLength, .schedule = DecodeDefaults::Schedule::kLinear};

}  // namespace

const Family& A2dQwen3Family() {
  static const Family family = {
      .name = "a2d-qwen3",
      .architectures = {"A2DQwen3LMHeadModel"},
      .model_types = {"a2d-qwen3"},
      .gguf_names = {"qwen3"},
      .base = {.qk_norm = true, .chat = "qwen3", .decode = kDecode},
      .mask_texts = {"<|mask|>"},
      .folder_names = &kQwenNames,
      .read_folder = ReadFolder,
      .read_gguf = ReadGguf,
      .shapes = {{"a2d-qwen3-0.6b",
                  [](ModelConfig& config) {
                    config.num_layers = 28;
                    config.model_dim = 1024;
                    config.num_heads = 16;
                    config.num_kv_heads = 8;
                    config.head_dim = 128;
                    config.ffn_dim = 3072;
                    config.vocab_rows = 151936;
                    config.context_length = 40960;
                    config.norm_epsilon = 1e-6f;
                    config.rope_theta = 1000000.0;
                    config.tied_head = true;
                    config.mask_id = 151669;
                    config.eos_id = 151645;
                    config.bos_id = config.pad_id = 151643;
                  }}},
      .tokens = {{151643, "<|endoftext|>"},
                 {151644, "<|im_start|>"},
                 {151645, "<|im_end|>"},
                 {151669, "<|mask|>"}},
  };
  return family;
}

const Family& A2dQwen2Family() {
  static const Family family = {
      .name = "a2d-qwen2",
      .architectures = {"A2DQwen2LMHeadModel"},
      .model_types = {"a2d-qwen2"},
      .gguf_names = {"qwen2"},
      .base = {.qkv_bias = true, .chat = "qwen2", .decode = kDecode},
      .mask_texts = {"<|mask|>"},
      .folder_names = &kQwenNames,
      .read_folder = ReadFolder,
      .read_gguf = ReadGguf,
      .shapes = {{"a2d-qwen2.5-0.5b",
                  [](ModelConfig& config) {
                    config.num_layers = 24;
                    config.model_dim = 896;
                    config.num_heads = 14;
                    config.num_kv_heads = 2;
                    config.head_dim = 64;
                    config.ffn_dim = 4864;
                    config.vocab_rows = 151936;
                    config.context_length = 32768;
                    config.norm_epsilon = 1e-6f;
                    config.rope_theta = 1000000.0;
                    config.tied_head = true;
                    config.mask_id = 151665;
                    config.eos_id = 151645;
                    config.bos_id = config.pad_id = 151643;
                  }}},
      .tokens = {{151643, "<|endoftext|>"},
                 {151644, "<|im_start|>"},
                 {151645, "<|im_end|>"},
                 {151665, "<|mask|>"}},
  };
  return family;
}

const Family& A2dLlamaFamily() {
  static const Family family = {
      .name = "a2d-llama",
      .architectures = {"A2DLlamaLMHeadModel"},
      .model_types = {"a2d-llama"},
      .base = {.chat = "llada", .decode = kDecode},
      .mask_texts = {"<|mask|>"},
      .folder_names = &kQwenNames,
      .read_folder = ReadFolder,
      .read_gguf = ReadGguf,
  };
  return family;
}

}  // namespace spa
