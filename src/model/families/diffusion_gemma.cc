// DiffusionGemma 26B-A4B (Google), its text part: Gemma-4 layers, most of them with a window and
// every sixth without; a dense network beside the experts; text is encoded causally, a canvas of
// random tokens is decoded against it.
#include <cmath>

#include "base/error.h"
#include "model/family.h"

namespace spa {
namespace {

using enum TensorRole;

constexpr std::pair<TensorRole, std::string_view> kNameList[] = {
    {kEmbedding, "model.decoder.embed_tokens.weight"},
    {kFinalNorm, "model.decoder.norm.weight"},
    {kConditionNorm, "model.decoder.self_conditioning.pre_norm.weight"},
    {kConditionGate, "model.decoder.self_conditioning.gate_proj.weight"},
    {kConditionUp, "model.decoder.self_conditioning.up_proj.weight"},
    {kConditionDown, "model.decoder.self_conditioning.down_proj.weight"},
    {kHead, "lm_head.weight"},
    {kAttnNorm, "input_layernorm.weight"},
    {kWq, "self_attn.q_proj.weight"},
    {kWk, "self_attn.k_proj.weight"},
    {kWv, "self_attn.v_proj.weight"},
    {kQNorm, "self_attn.q_norm.weight"},
    {kKNorm, "self_attn.k_norm.weight"},
    {kWo, "self_attn.o_proj.weight"},
    {kFfnNorm, "pre_feedforward_layernorm.weight"},
    {kPostAttnNorm, "post_attention_layernorm.weight"},
    {kPostFfnNorm, "post_feedforward_layernorm.weight"},
    {kPostDenseNorm, "post_feedforward_layernorm_1.weight"},
    {kExpertNorm, "pre_feedforward_layernorm_2.weight"},
    {kPostExpertNorm, "post_feedforward_layernorm_2.weight"},
    {kLayerScale, "layer_scalar"},
    {kEncoderScale, "model.encoder.language_model.layers.{}.layer_scalar"},
    {kWgate, "mlp.gate_proj.weight"},
    {kWup, "mlp.up_proj.weight"},
    {kWdown, "mlp.down_proj.weight"},
    {kRouter, "router.proj.weight"},
    {kRouterScale, "router.scale"},
    {kExpertScale, "router.per_expert_scale"},
    {kExpertGateUp, "experts.gate_up_proj"},
    {kExpertDown, "experts.down_proj"},
};
constexpr TensorNames kNames = {.layer = "model.decoder.layers.{}.", .names = kNameList};

// windowed[i]: layer i has a window and the heads of the config; the others are wide.
void SetLayers(const std::vector<bool>& windowed, size_t window, ModelConfig& config) {
  config.wide.values_are_keys = true;
  config.layer_shapes.clear();
  for (const bool narrow : windowed) {
    config.layer_shapes.push_back(
        narrow ? LayerShape{config.num_kv_heads, config.head_dim, window, false} : config.wide);
  }
  config.embedding_scale = std::sqrt(static_cast<float>(config.model_dim));
}

JsonConfig Required(const JsonConfig& json, const char* key) {
  if (auto object = json.Object(key)) return *object;
  throw Error("{}: '{}' is missing", json.where(), key);
}

void ReadFolder(const JsonConfig& json, ModelConfig& config) {
  const JsonConfig text = Required(json, "text_config");
  text.Expect("attention_bias", false);
  text.Expect("hidden_activation", "gelu_pytorch_tanh");
  config.num_layers = text.RequiredUint("num_hidden_layers");
  config.model_dim = text.RequiredUint("hidden_size");
  config.num_heads = text.RequiredUint("num_attention_heads");
  config.num_kv_heads = text.RequiredUint("num_key_value_heads");
  config.head_dim = text.RequiredUint("head_dim");
  config.ffn_dim = text.RequiredUint("intermediate_size");
  config.context_length = text.RequiredUint("max_position_embeddings");
  config.vocab_rows = text.RequiredUint("vocab_size");
  config.norm_epsilon = static_cast<float>(text.RequiredNumber("rms_norm_eps"));
  config.logit_cap =
      static_cast<float>(text.Number("final_logit_softcapping").value_or(config.logit_cap));
  config.experts.count = text.RequiredUint("num_experts");
  config.experts.used = text.RequiredUint("top_k_experts");
  config.experts.dim = text.RequiredUint("moe_intermediate_size");
  config.tied_head = json.Bool("tie_word_embeddings", true);
  config.attention.block_length = config.decode.block_length = json.RequiredUint("canvas_length");
  config.decode.gen_length = config.decode.block_length;

  std::vector<bool> windowed;
  std::string first_wide;
  for (const std::string& type : text.Strings("layer_types")) {
    if (type != "sliding_attention" && type != "full_attention") {
      throw Error("{}: 'layer_types' has \"{}\", neither sliding_attention nor full_attention",
                  json.where(), type);
    }
    if (type == "full_attention" && first_wide.empty()) {
      first_wide = std::to_string(windowed.size());
    }
    windowed.push_back(type == "sliding_attention");
  }
  if (windowed.size() != config.num_layers) {
    throw Error("{}: 'layer_types' names {} layers of {}", json.where(), windowed.size(),
                config.num_layers);
  }
  // Newer files describe layer by layer what older ones say once for all wide layers.
  const auto layers = text.Object("per_layer_config");
  const auto wide = layers ? layers->Object(first_wide.c_str()) : std::nullopt;
  config.wide.head_dim = wide ? wide->Uint("head_dim").value_or(config.head_dim)
                              : text.Uint("global_head_dim").value_or(config.head_dim);
  config.wide.num_kv_heads =
      wide ? wide->Uint("num_key_value_heads").value_or(config.num_kv_heads)
           : text.Uint("num_global_key_value_heads").value_or(config.num_kv_heads);
  const JsonConfig rope = Required(text, "rope_parameters");
  const JsonConfig narrow_rope = Required(rope, "sliding_attention");
  narrow_rope.Expect("rope_type", "default");
  config.rope_theta = narrow_rope.RequiredNumber("rope_theta");
  config.rope_dim = config.head_dim;
  const JsonConfig wide_rope = Required(rope, "full_attention");
  wide_rope.Expect("rope_type", "proportional");
  config.wide_rope_theta = wide_rope.RequiredNumber("rope_theta");
  const double fraction = wide_rope.Number("partial_rotary_factor").value_or(1.0);
  const size_t pairs = config.wide.head_dim / 2;
  config.wide_rope_dim = static_cast<size_t>(fraction * static_cast<double>(pairs)) * 2;
  SetLayers(windowed, text.RequiredUint("sliding_window"), config);
  if (!config.eos_id) config.eos_id = text.Token("eos_token_id");
  if (!config.bos_id) config.bos_id = text.Token("bos_token_id");
  if (!config.pad_id) config.pad_id = text.Token("pad_token_id");
}

void ReadGguf(const GgufConfig& gguf, ModelConfig& config) {
  const GgufFile& file = gguf.file();
  config.num_layers = gguf.RequiredUint("block_count");
  config.context_length = gguf.RequiredUint("context_length");
  config.model_dim = gguf.RequiredUint("embedding_length");
  config.ffn_dim = gguf.RequiredUint("feed_forward_length");
  config.num_heads = gguf.RequiredUint("attention.head_count");
  config.norm_epsilon = static_cast<float>(gguf.RequiredNumber("attention.layer_norm_rms_epsilon"));
  config.head_dim = gguf.RequiredUint("attention.key_length_swa");
  config.wide.head_dim = gguf.RequiredUint("attention.key_length");
  config.rope_theta = gguf.RequiredNumber("rope.freq_base_swa");
  config.wide_rope_theta = gguf.RequiredNumber("rope.freq_base");
  config.rope_dim = config.head_dim;
  config.wide_rope_dim =
      file.FindUint("diffusion.turning_dimensions").value_or(config.wide.head_dim / 4);
  config.logit_cap =
      static_cast<float>(gguf.Number("final_logit_softcapping").value_or(config.logit_cap));
  config.experts.count = gguf.RequiredUint("expert_count");
  config.experts.used = gguf.RequiredUint("expert_used_count");
  config.experts.dim = gguf.RequiredUint("expert_feed_forward_length");
  if (const auto length = file.FindUint("diffusion.canvas_length")) {
    config.attention.block_length = config.decode.block_length = config.decode.gen_length = *length;
  }
  const std::vector<uint64_t> kv_heads = gguf.Uints("attention.head_count_kv"),
                              pattern = gguf.Uints("attention.sliding_window_pattern");
  if (kv_heads.size() != config.num_layers || pattern.size() != config.num_layers) {
    throw Error("{}: the heads or windows of some layers are missing", file.name());
  }
  std::vector<bool> windowed;
  for (size_t i = 0; i < pattern.size(); ++i) {
    windowed.push_back(pattern[i] != 0);
    size_t& heads = windowed.back() ? config.num_kv_heads : config.wide.num_kv_heads;
    if (heads != 0 && heads != kv_heads[i]) {
      throw Error("{}: layers of one kind have different numbers of KV heads", file.name());
    }
    heads = kv_heads[i];
  }
  if (config.num_kv_heads == 0) config.num_kv_heads = config.wide.num_kv_heads;
  SetLayers(windowed, gguf.RequiredUint("attention.sliding_window"), config);
}

ModelConfig Base() {
  ModelConfig config;
  config.qk_norm = config.value_norm = true;
  config.tied_head = true;
  config.attention_scale = 1.0f;
  config.post_norms = config.layer_scales = config.self_conditioning = true;
  config.logit_cap = 30.0f;
  config.activation = config.experts.activation = Activation::kGelu;
  config.experts.renormalise = true;
  config.experts.scaled = config.experts.beside_dense = config.experts.fused_gate_up = true;
  config.attention = {AttentionKind::kCausal, 256, BlockOrigin::kPromptEnd};
  config.chat = "none";
  config.decode.gen_length = config.decode.block_length = 256;
  config.decode.steps_per_block = 48;
  config.decode.schedule = DecodeDefaults::Schedule::kThreshold;
  config.decode.noise = true;
  config.decode.temperature = 0.4;
  config.decode.first_temperature = 0.8;
  config.decode.entropy_bound = 0.1;
  config.decode.stable_entropy = 0.005;
  return config;
}

void SetShape(ModelConfig& config) {
  config.num_layers = 30;
  config.model_dim = 2816;
  config.num_heads = 16;
  config.num_kv_heads = 8;
  config.head_dim = config.rope_dim = 256;
  config.ffn_dim = 2112;
  config.experts.count = 128;
  config.experts.used = 8;
  config.experts.dim = 704;
  config.vocab_rows = 262144;
  config.context_length = 131072;
  config.norm_epsilon = 1e-6f;
  config.rope_theta = 1e4;
  config.wide.head_dim = 512;
  config.wide.num_kv_heads = 2;
  config.wide_rope_theta = 1e6;
  config.wide_rope_dim = 128;
  config.pad_id = 0;
  config.eos_id = 1;
  config.bos_id = 2;
  std::vector<bool> windowed;
  for (size_t layer = 0; layer < config.num_layers; ++layer) windowed.push_back(layer % 6 != 5);
  SetLayers(windowed, 1024, config);
}

}  // namespace

const Family& DiffusionGemmaFamily() {
  static const Family family = {
      .name = "diffusion-gemma",
      .architectures = {"DiffusionGemmaForBlockDiffusion"},
      .model_types = {"diffusion_gemma"},
      .base = Base(),
      .folder_names = &kNames,
      .read_folder = ReadFolder,
      .read_gguf = ReadGguf,
      .shapes = {{"diffusion-gemma-26b", SetShape}},
      .tokens = {{0, "<pad>"}, {1, "<eos>"}, {2, "<bos>"}},
      .other_tensors = {"model.encoder.vision_tower.", "model.encoder.embed_vision.",
                        "model.encoder.multi_modal_projector.", "rope_freqs."},
  };
  return family;
}

}  // namespace spa
