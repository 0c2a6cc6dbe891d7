// Fast-dLLM v2 (NVIDIA): Qwen2.5 layers, block diffusion with sub-blocks; row p - 1 predicts
// position p, and a finished block's last row the next block's first token.
#include "model/family.h"

namespace spa {
namespace {

void ReadFolder(const JsonConfig& json, ModelConfig& config) {
  ReadQwenFolder(json, config);
  config.attention.block_length = config.decode.block_length =
      json.Uint("bd_size").value_or(config.attention.block_length);
}

void ReadGguf(const GgufConfig& gguf, ModelConfig& config) {
  ReadLlamaGguf(gguf, config);
  config.attention.block_length = config.decode.block_length =
      gguf.Uint("block_size").value_or(config.attention.block_length);
}

void SetShared(ModelConfig& config) {
  config.num_layers = 28;
  config.head_dim = 128;
  config.context_length = 32768;
  config.norm_epsilon = 1e-6f;
  config.rope_theta = 1000000.0;
  config.mask_id = 151665;
  config.eos_id = 151645;
  config.bos_id = config.pad_id = 151643;
}

ModelConfig Base() {
  return {.qkv_bias = true,
          .logit_shift = true,
          .attention = {.kind = AttentionKind::kBlocks, .block_length = 32},
          .chat = "qwen2",
          .decode = {.gen_length = 512,
                     .block_length = 32,
                     .sub_block_length = 8,
                     .schedule = DecodeDefaults::Schedule::kThreshold,
                     .threshold = 0.9,
                     .block_seeds_next = true},
          .cache = {.dkv_interval = 4, .dkv_by_block = false}};
}

}  // namespace

const Family& FastDllmV2Family() {
  static const Family family = {
      .name = "fast-dllm",
      .architectures = {"Fast_dLLM_QwenForCausalLM"},
      .model_types = {"Fast_dLLM_Qwen"},
      .base = Base(),
      .mask_texts = {"|<MASK>|"},
      .folder_names = &kQwenNames,
      .read_folder = ReadFolder,
      .read_gguf = ReadGguf,
      .shapes = {{"fast-dllm-v2-1.5b",
                  [](ModelConfig& config) {
                    SetShared(config);
                    config.model_dim = 1536;
                    config.num_heads = 12;
                    config.num_kv_heads = 2;
                    config.ffn_dim = 8960;
                    config.vocab_rows = 151936;
                    config.tied_head = true;
                  }},
                 {"fast-dllm-v2-7b",
                  [](ModelConfig& config) {
                    SetShared(config);
                    config.model_dim = 3584;
                    config.num_heads = 28;
                    config.num_kv_heads = 4;
                    config.ffn_dim = 18944;
                    config.vocab_rows = 152064;
                  }}},
      .tokens = {{151643, "<|endoftext|>"},
                 {151644, "<|im_start|>"},
                 {151645, "<|im_end|>"},
                 {151665, "|<MASK>|"}},
  };
  return family;
}

}  // namespace spa
