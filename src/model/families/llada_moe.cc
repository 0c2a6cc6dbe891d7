// LLaDA-MoE-7B-A1B (inclusionAI): LLaDA's decoding with QK norm and experts in every layer.
#include "base/error.h"
#include "model/family.h"

namespace spa {
namespace {

void ReadFolder(const JsonConfig& json, ModelConfig& config) {
  ReadQwenFolder(json, config);
  json.Expect("qk_layernorm", true);
  json.Expect("moe_router_score_function", "softmax");
  // The makers' code would weigh with the bias too; no published model has one.
  json.Expect("moe_router_enable_expert_bias", false);
  json.ExpectAbsent("clip_qkv");
  json.ExpectAbsent("router_num_group");
  json.ExpectAbsent("router_topk_group");
  if (json.Number("partial_rotary_factor").value_or(1.0) != 1.0) {
    throw Error("{}: 'partial_rotary_factor' is not 1", json.where());
  }
  config.ffn_dim = 0;  // dense_intermediate_size has no layer
  if (const auto frequency = json.Numbers("moe_layer_freq")) {
    for (const double value : *frequency) {
      if (value != 1.0) {
        throw Error(
            "{}: 'moe_layer_freq' has a dense layer; this engine runs models of this "
            "family with experts in every layer",
            json.where());
      }
    }
  }
  // norm_topk_prob and routed_scaling_factor have no effect in the makers' code.
  config.experts.count = json.RequiredUint("num_experts");
  config.experts.used = json.RequiredUint("num_experts_per_tok");
  config.experts.dim = json.RequiredUint("expert_intermediate_size");
  config.experts.shared_dim = json.Uint("shared_expert_intermediate_size").value_or(0);
}

ModelConfig Base() { return {.qk_norm = true, .chat = "ling"}; }

}  // namespace

const Family& LladaMoeFamily() {
  static const Family family = {
      .name = "llada-moe",
      .architectures = {"LLaDAMoEModel", "LLaDAMoEModelLM"},
      .model_types = {"lladamoe"},
      .base = Base(),
      .mask_texts = {"<|mask|>"},
      .mask_id = 156895,
      .folder_names = &kQwenNames,
      .read_folder = ReadFolder,
      .read_gguf = ReadLlamaGguf,
      .shapes = {{"llada-moe-7b",
                  [](ModelConfig& config) {
                    config.num_layers = 16;
                    config.model_dim = 2048;
                    config.num_heads = 16;
                    config.num_kv_heads = 16;
                    config.head_dim = 128;
                    config.experts.count = 64;
                    config.experts.used = 8;
                    config.experts.dim = 1024;
                    config.vocab_rows = 157184;
                    config.context_length = 8192;
                    config.norm_epsilon = 1e-5f;
                    config.rope_theta = 50000.0;
                    config.mask_id = 156895;
                    config.eos_id = 156892;
                    config.pad_id = 156892;
                  }}},
      .tokens = {{156892, "<|endoftext|>"},
                 {156895, "<|mask|>"},
                 {156896, "<role>"},
                 {156897, "</role>"},
                 {156898, "<|role_end|>"}},
      .pre = "bailingmoe",
  };
  return family;
}

}  // namespace spa
