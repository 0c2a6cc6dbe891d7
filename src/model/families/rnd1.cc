// RND1-Base (Radical Numerics): Qwen3-30B-A3B with full attention; row p - 1 predicts position p.
#include "base/error.h"
#include "model/family.h"

namespace spa {
namespace {

void ReadFolder(const JsonConfig& json, ModelConfig& config) {
  ReadQwenFolder(json, config);
  ReadQwenExperts(json, config);
}

ModelConfig Base() {
  return {.qk_norm = true,
          .logit_shift = true,
          .experts = {.renormalise = true},
          .chat = "none",
          .decode = {.gen_length = 256,
                     .block_length = 0,
                     .schedule = DecodeDefaults::Schedule::kEntropyKept,
                     .order = DecodeDefaults::Order::kEntropy,
                     .draw = DecodeDefaults::Draw::kFiltered,
                     .pad_after_canvas = true},
          .cache = {.dkv_interval = 4, .dkv_by_block = false}};
}

}  // namespace

const Family& Rnd1Family() {
  static const Family family = {
      .name = "rnd1",
      .architectures = {"RND1", "RND1LM"},
      .model_types = {"rnd1"},
      .base = Base(),
      .folder_names = &kQwenNames,
      .read_folder = ReadFolder,
      .read_gguf = ReadLlamaGguf,
      .shapes = {{"rnd1-30b",
                  [](ModelConfig& config) {
                    config.num_layers = 48;
                    config.model_dim = 2048;
                    config.num_heads = 32;
                    config.num_kv_heads = 4;
                    config.head_dim = 128;
                    config.experts.count = 128;
                    config.experts.used = 8;
                    config.experts.dim = 768;
                    config.vocab_rows = 151936;
                    config.context_length = 40960;
                    config.norm_epsilon = 1e-6f;
                    config.rope_theta = 1000000.0;
                    config.mask_id = 151669;
                    config.eos_id = 151645;
                    config.pad_id = 151643;
                  }}},
      .tokens = {{151643, "<|endoftext|>"},
                 {151644, "<|im_start|>"},
                 {151645, "<|im_end|>"},
                 {151669, "<|mask|>"}},
  };
  return family;
}

}  // namespace spa
