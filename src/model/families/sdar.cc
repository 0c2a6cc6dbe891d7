// SDAR (JetAstra): Qwen3 layers, block diffusion in short blocks counted from the start.
#include "model/family.h"

namespace spa {
namespace {

void ReadFolder(const JsonConfig& json, ModelConfig& config) {
  ReadQwenFolder(json, config);
  // Folders without the field were made for blocks of 4; those tuned for others say so in their
  // names (-b8 ... -b64).
  size_t block = config.attention.block_length;
  for (const size_t named : {8, 16, 32, 64}) {
    if (config.name.ends_with("-b" + std::to_string(named))) block = named;
  }
  block = json.Uint("block_size").value_or(block);
  config.attention.block_length = config.decode.block_length = block;
}

void ReadMoeFolder(const JsonConfig& json, ModelConfig& config) {
  ReadFolder(json, config);
  ReadQwenExperts(json, config);
}

ModelConfig Base() {
  return {.qk_norm = true,
          .attention = {.kind = AttentionKind::kBlocks, .block_length = 4},
          .chat = "chatml",
          .decode = {.gen_length = 256,
                     .block_length = 4,
                     .schedule = DecodeDefaults::Schedule::kEvenSplitBlock,
                     .threshold = 0.95}};
}

void SetIds(ModelConfig& config) {
  config.head_dim = 128;
  config.vocab_rows = 151936;
  config.context_length = 32768;
  config.norm_epsilon = 1e-6f;
  config.rope_theta = 1000000.0;
  config.mask_id = 151669;
  config.eos_id = config.pad_id = 151643;
}

}  // namespace

const Family& SdarFamily() {
  static const Family family = {
      .name = "sdar",
      .architectures = {"SDARForCausalLM"},
      .model_types = {"sdar"},
      .base = Base(),
      .mask_texts = {"<|MASK|>", "<MASK>"},
      .mask_id = 151669,
      .folder_names = &kQwenNames,
      .read_folder = ReadFolder,
      .read_gguf = ReadLlamaGguf,
      .shapes = {{"sdar-4b",
                  [](ModelConfig& config) {
                    SetIds(config);
                    config.num_layers = 36;
                    config.model_dim = 2560;
                    config.num_heads = 32;
                    config.num_kv_heads = 8;
                    config.ffn_dim = 9728;
                  }},
                 {"sdar-8b",
                  [](ModelConfig& config) {
                    SetIds(config);
                    config.num_layers = 36;
                    config.model_dim = 4096;
                    config.num_heads = 32;
                    config.num_kv_heads = 8;
                    config.ffn_dim = 12288;
                  }}},
      .tokens = {{151643, "<|endoftext|>"},
                 {151644, "<|im_start|>"},
                 {151645, "<|im_end|>"},
                 {151669, "<|MASK|>"}},
  };
  return family;
}

const Family& SdarMoeFamily() {
  static const Family family = [] {
    Family moe = SdarFamily();
    moe.name = "sdar-moe";
    moe.architectures = {"SDARMoeForCausalLM"};
    moe.model_types = {"sdar_moe"};
    moe.base.experts.renormalise = true;
    moe.read_folder = ReadMoeFolder;
    moe.shapes = {{"sdar-30b", [](ModelConfig& config) {
                     SetIds(config);
                     config.num_layers = 48;
                     config.model_dim = 2048;
                     config.num_heads = 32;
                     config.num_kv_heads = 4;
                     config.experts.count = 128;
                     config.experts.used = 8;
                     config.experts.dim = 768;
                   }}};
    return moe;
  }();
  return family;
}

}  // namespace spa
