// Dream-7B (Dream-org), and the models made from it: Dream-Coder, DiffuCoder, DreamOn. Qwen2.5's
// layers with full attention; row p - 1 predicts position p.
#include "model/family.h"

namespace spa {
namespace {

// The models made from Dream-7B are told apart by their names alone.
void SetDecodeDefaults(ModelConfig& config) {
  const auto named = [&](std::string_view part) {
    return config.name.find(part) != std::string::npos;
  };
  if (named("Dream-Coder")) {
    config.decode.gen_length = 768;
    config.decode.temperature = 0.1;
    config.decode.top_p = 0.95;
  } else if (named("DiffuCoder")) {
    config.decode.gen_length = 256;
    config.decode.temperature = 0.3;
    config.decode.top_p = 0.95;
  } else if (config.expand_id) {  // DreamOn
    config.decode.gen_length = 64;
    config.decode.temperature = 0.2;
    config.decode.top_p = 0.9;
  }
}

void ReadFolder(const JsonConfig& json, ModelConfig& config) {
  ReadQwenFolder(json, config);
  config.expand_id = json.Token("expand_token_id");
  SetDecodeDefaults(config);
}

void ReadGguf(const GgufConfig& gguf, ModelConfig& config) {
  ReadLlamaGguf(gguf, config);
  if (gguf.prefix() != "dream.") config.logit_shift = true;  // diffuse-cpp has no key for it
  if (const auto id = gguf.file().FindUint("diffusion.expand_token_id")) {
    config.expand_id = static_cast<TokenId>(*id);
  }
  SetDecodeDefaults(config);
}

ModelConfig Base() {
  return {.qkv_bias = true,
          .logit_shift = true,
          .chat = "dream",
          .decode = {.block_length = 0,
                     .schedule = DecodeDefaults::Schedule::kTimeGrid,
                     .order = DecodeDefaults::Order::kEntropy,
                     .draw = DecodeDefaults::Draw::kFiltered},
          .cache = {.spa_peak_depth = 0.5,
                    .spa_peak_ratio = 0.30,
                    .spa_first_ratio = 0.05,
                    .spa_last_ratio = 0.25,
                    .spa_reference_peak_depth = 0.5,
                    .spa_proxy_share = 16,
                    .spa_reference_warmup = 1,
                    .spa_prompt_interval = 25,
                    .spa_gen_interval = 2,
                    .spa_floor_ratio = 0.125,
                    .elastic_beta = 32,
                    .dllm_prompt_interval = 25,
                    .dllm_gen_interval = 2,
                    .dkv_interval = 4,
                    .dkv_by_block = false}};
}

void SetShape(ModelConfig& config) {
  config.num_layers = 28;
  config.model_dim = 3584;
  config.num_heads = 28;
  config.num_kv_heads = 4;
  config.head_dim = 128;
  config.ffn_dim = 18944;
  config.vocab_rows = 152064;
  config.context_length = 131072;
  config.norm_epsilon = 1e-6f;
  config.rope_theta = 1000000.0;
  config.mask_id = 151666;
  config.eos_id = 151643;
  config.bos_id = 151643;
  config.pad_id = 151643;
}

}  // namespace

const Family& DreamFamily() {
  static const Family family = {
      .name = "dream",
      .architectures = {"DreamModel"},
      .model_types = {"Dream", "dream"},
      .base = Base(),
      .mask_texts = {"<|mask|>"},
      .folder_names = &kQwenNames,
      .read_folder = ReadFolder,
      .read_gguf = ReadGguf,
      .shapes = {{"dream-7b", SetShape},
                 {"dreamon-7b",
                  [](ModelConfig& config) {
                    SetShape(config);
                    config.expand_id = 151667;
                    SetDecodeDefaults(config);
                  }}},
      .tokens = {{151643, "<|endoftext|>"},
                 {151644, "<|im_start|>"},
                 {151645, "<|im_end|>"},
                 {151666, "<|mask|>"}},
  };
  return family;
}

}  // namespace spa
