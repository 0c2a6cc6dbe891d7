// LLaDA2.0 and LLaDA2.1, mini and flash (inclusionAI): block diffusion; a sigmoid router with
// groups and a shared expert behind one dense layer; half of each head rotates.
#include "base/error.h"
#include "model/family.h"

namespace spa {
namespace {

using enum TensorRole;

constexpr std::pair<TensorRole, std::string_view> kNameList[] = {
    {kEmbedding, "model.word_embeddings.weight"},
    {kFinalNorm, "model.norm.weight"},
    {kHead, "lm_head.weight"},
    {kAttnNorm, "input_layernorm.weight"},
    {kWqkv, "attention.query_key_value.weight"},
    {kQNorm, "attention.query_layernorm.weight"},
    {kKNorm, "attention.key_layernorm.weight"},
    {kWo, "attention.dense.weight"},
    {kFfnNorm, "post_attention_layernorm.weight"},
    {kWgate, "mlp.gate_proj.weight"},
    {kWup, "mlp.up_proj.weight"},
    {kWdown, "mlp.down_proj.weight"},
    {kRouter, "mlp.gate.weight"},
    {kRouterBias, "mlp.gate.expert_bias"},
    {kSharedGate, "mlp.shared_experts.gate_proj.weight"},
    {kSharedUp, "mlp.shared_experts.up_proj.weight"},
    {kSharedDown, "mlp.shared_experts.down_proj.weight"},
    {kExpertGate, "mlp.experts.{}.gate_proj.weight"},
    {kExpertUp, "mlp.experts.{}.up_proj.weight"},
    {kExpertDown, "mlp.experts.{}.down_proj.weight"},
};
constexpr TensorNames kNames = {.layer = "model.layers.{}.", .names = kNameList};

// 2.1 has the layers of 2.0 and decodes with edits: only its name tells (the config's model_type in
// one code base).
void SetDecodeDefaults(ModelConfig& config, bool edits) {
  if (!edits && config.name.find("2.1") == std::string::npos) return;
  config.decode.threshold = 0.7;
  config.decode.edit_threshold = 0.5;
  config.decode.max_post_steps = 16;
}

void ReadFolder(const JsonConfig& json, ModelConfig& config) {
  ReadQwenFolder(json, config);
  json.Expect("use_qk_norm", true);
  json.Expect("use_qkv_bias", false);
  if (json.Bool("use_bias", true)) {
    throw Error(
        "{}: 'use_bias' is true (as it is when absent); this engine runs models of this "
        "family without biases",
        json.where());
  }
  json.Expect("norm_head", false);
  json.Expect("score_function", "sigmoid");
  json.Expect("norm_topk_prob", true);
  json.Expect("using_split_qkv_in_self_attention", false);
  const double fraction = json.Number("partial_rotary_factor").value_or(1.0);
  config.rope_dim = static_cast<size_t>(fraction * static_cast<double>(config.head_dim));
  if (json.Uint("rotary_dim").value_or(config.rope_dim) != config.rope_dim) {
    throw Error("{}: 'rotary_dim' is {}, but 'partial_rotary_factor' makes it {}", json.where(),
                *json.Uint("rotary_dim"), config.rope_dim);
  }
  ExpertConfig& experts = config.experts;
  experts.count = json.RequiredUint("num_experts");
  experts.used = json.RequiredUint("num_experts_per_tok");
  experts.dim = json.RequiredUint("moe_intermediate_size");
  experts.shared_dim = experts.dim * json.Uint("num_shared_experts").value_or(0);
  experts.first_dense_layers = json.Uint("first_k_dense_replace").value_or(0);
  experts.bias = json.Bool("moe_router_enable_expert_bias", true);
  experts.groups = json.Uint("n_group").value_or(1);
  experts.groups_used = json.Uint("topk_group").value_or(experts.groups);
  experts.scale = json.Number("routed_scaling_factor").value_or(1.0);
  if (!config.eos_id) config.eos_id = config.pad_id;  // the same token, named once
  SetDecodeDefaults(config, json.String("model_type") == "llada21_moe");
}

void ReadGguf(const GgufConfig& gguf, ModelConfig& config) {
  ReadLlamaGguf(gguf, config);
  if (!config.eos_id) config.eos_id = config.pad_id;
  SetDecodeDefaults(config, false);
}

void SetShape(ModelConfig& config) {
  config.head_dim = 128;
  config.rope_dim = 64;
  config.num_kv_heads = 4;
  config.experts.count = 256;
  config.experts.used = 8;
  config.experts.groups = 8;
  config.experts.groups_used = 4;
  config.experts.scale = 2.5;
  config.experts.first_dense_layers = 1;
  config.experts.bias = true;
  config.vocab_rows = 157184;
  config.context_length = 32768;
  config.norm_epsilon = 1e-6f;
  config.rope_theta = 600000.0;
  config.mask_id = 156895;
  config.eos_id = 156892;
  config.pad_id = 156892;
}

ModelConfig Base() {
  return {.qk_norm = true,
          .experts = {.router = RouterKind::kSigmoid, .renormalise = true},
          .attention = {.kind = AttentionKind::kBlocks, .block_length = 32},
          .chat = "ling",
          .decode = {.gen_length = 2048,
                     .block_length = 32,
                     .steps_per_block = 32,
                     .schedule = DecodeDefaults::Schedule::kEvenSplitBlock,
                     .threshold = 0.95}};
}

}  // namespace

const Family& Llada2Family() {
  static const Family family = {
      .name = "llada2",
      .architectures = {"LLaDA2MoeModelLM"},
      .model_types = {"llada2_moe", "llada21_moe", "llada2_moe_veomni"},
      .base = Base(),
      .mask_texts = {"<|mask|>"},
      .mask_id = 156895,
      .folder_names = &kNames,
      .read_folder = ReadFolder,
      .read_gguf = ReadGguf,
      .shapes = {{"llada2-mini",
                  [](ModelConfig& config) {
                    SetShape(config);
                    config.num_layers = 20;
                    config.model_dim = 2048;
                    config.num_heads = 16;
                    config.ffn_dim = 5120;
                    config.experts.dim = 512;
                    config.experts.shared_dim = 512;
                  }},
                 {"llada2-flash",
                  [](ModelConfig& config) {
                    SetShape(config);
                    config.num_layers = 32;
                    config.model_dim = 4096;
                    config.num_heads = 32;
                    config.ffn_dim = 9216;
                    config.experts.dim = 1024;
                    config.experts.shared_dim = 1024;
                  }}},
      .tokens = {{156892, "<|endoftext|>"},
                 {156895, "<|mask|>"},
                 {156896, "<role>"},
                 {156897, "</role>"},
                 {156898, "<|role_end|>"}},
      .pre = "bailingmoe",
      .fused_qkv = true,
  };
  return family;
}

}  // namespace spa
