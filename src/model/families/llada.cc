// LLaDA-8B and LLaDA-1.5 (GSAI-ML): dense, full attention, no biases.
#include "model/family.h"

namespace spa {
namespace {

using enum TensorRole;

// Note the two meanings of ff_out: in a block it is the FFN's down projection, outside the output
// head; and that ff_proj is the gate.
constexpr std::pair<TensorRole, std::string_view> kNameList[] = {
    {kEmbedding, "model.transformer.wte.weight"},
    {kFinalNorm, "model.transformer.ln_f.weight"},
    {kHead, "model.transformer.ff_out.weight"},
    {kAttnNorm, "attn_norm.weight"},
    {kWq, "q_proj.weight"},
    {kWk, "k_proj.weight"},
    {kWv, "v_proj.weight"},
    {kWo, "attn_out.weight"},
    {kFfnNorm, "ff_norm.weight"},
    {kWgate, "ff_proj.weight"},
    {kWup, "up_proj.weight"},
    {kWdown, "ff_out.weight"},
};
constexpr TensorNames kNames = {.layer = "model.transformer.blocks.{}.", .names = kNameList};

// LLaDA-1.5 differs from LLaDA-8B in nothing but its numbers for SPA-Cache: the paper's peak is
// layer 25 of 32, the authors' code has 0.8 of the depth.
void SetCacheDefaults(ModelConfig& config) {
  if (config.name.find("1.5") == std::string::npos) return;
  config.cache.spa_peak_depth = 25.0 / 32.0;
  config.cache.spa_reference_peak_depth = 0.8;
}

void ReadFolder(const JsonConfig& json, ModelConfig& config) {
  for (const char* key : {"alibi", "attention_layer_norm", "include_bias", "include_qkv_bias",
                          "input_emb_norm", "scale_logits"}) {
    json.Expect(key, false);
  }
  json.Expect("rope", true);
  json.Expect("block_type", "llama");
  json.Expect("layer_norm_type", "rms");
  json.Expect("activation_type", "silu");
  json.Expect("block_group_size", uint64_t{1});
  config.num_layers = json.RequiredUint("n_layers", "num_hidden_layers");
  config.model_dim = json.RequiredUint("d_model", "hidden_size");
  config.num_heads = json.RequiredUint("n_heads", "num_attention_heads");
  config.num_kv_heads = json.Uint("n_kv_heads", "num_key_value_heads").value_or(config.num_heads);
  config.head_dim = config.num_heads > 0 ? config.model_dim / config.num_heads : 0;
  config.ffn_dim = json.RequiredUint("mlp_hidden_size", "intermediate_size");
  config.context_length = json.RequiredUint("max_sequence_length", "max_position_embeddings");
  config.vocab_rows = json.Uint("embedding_size").value_or(json.RequiredUint("vocab_size"));
  config.norm_epsilon = static_cast<float>(json.RequiredNumber("rms_norm_eps"));
  config.rope_theta = json.RequiredNumber("rope_theta");
  config.tied_head = json.Bool("weight_tying", false, "tie_word_embeddings");
  SetCacheDefaults(config);
}

void ReadGguf(const GgufConfig& gguf, ModelConfig& config) {
  // llama.cpp's rule for an absent key, whatever its own converter writes for this family.
  config.logit_shift = true;
  ReadLlamaGguf(gguf, config);
  // llama.cpp stores permuted rows; diffuse-cpp, whose keys begin otherwise, does not, and its
  // LLaDA has no shift.
  config.interleaved_qk = gguf.prefix() == "llada.";
  if (!config.interleaved_qk) config.logit_shift = false;
  SetCacheDefaults(config);
}

ModelConfig Base() { return {.chat = "llada"}; }

}  // namespace

const Family& LladaFamily() {
  static const Family family = {
      .name = "llada",
      .architectures = {"LLaDAModelLM", "LLaDAModel"},
      .model_types = {"llada"},
      .base = Base(),
      .mask_texts = {"<|mdm_mask|>"},
      .folder_names = &kNames,
      .read_folder = ReadFolder,
      .read_gguf = ReadGguf,
      .shapes = {{"llada-8b",
                  [](ModelConfig& config) {
                    config.num_layers = 32;
                    config.model_dim = 4096;
                    config.num_heads = 32;
                    config.num_kv_heads = 32;
                    config.head_dim = 128;
                    config.ffn_dim = 12288;
                    config.vocab_rows = 126464;
                    config.context_length = 4096;
                    config.norm_epsilon = 1e-5f;
                    config.rope_theta = 500000.0;
                    config.interleaved_qk = true;
                    config.mask_id = 126336;
                    config.eos_id = 126081;
                    config.bos_id = 126080;
                    config.pad_id = 126081;
                  }}},
      .tokens = {{126080, "<|startoftext|>"},
                 {126081, "<|endoftext|>"},
                 {126336, "<|mdm_mask|>"},
                 {126346, "<|start_header_id|>"},
                 {126347, "<|end_header_id|>"},
                 {126348, "<|eot_id|>"}},
      .pre = "bailingmoe",
      .interleaved_qk = true,
      .adds_bos = true,
  };
  return family;
}

}  // namespace spa
