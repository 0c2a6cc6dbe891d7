#include "model/tensor_names.h"

#include <fmt/format.h>

#include "base/error.h"

namespace spa {
namespace {

struct Names {
  TensorRole role;
  const char* gguf;
  const char* hf_llada;  // after "model.transformer."
  const char* hf_dream;
};

// Note LLaDA's two meanings of ff_out: in a block it is the FFN's down projection, outside the
// output head; and that its ff_proj is the gate.
constexpr Names kModelNames[] = {
    {TensorRole::kEmbedding, "token_embd.weight", "wte.weight", "model.embed_tokens.weight"},
    {TensorRole::kFinalNorm, "output_norm.weight", "ln_f.weight", "model.norm.weight"},
    {TensorRole::kHead, "output.weight", "ff_out.weight", "lm_head.weight"},
};
constexpr Names kLayerNames[] = {
    {TensorRole::kAttnNorm, "attn_norm.weight", "attn_norm.weight", "input_layernorm.weight"},
    {TensorRole::kWq, "attn_q.weight", "q_proj.weight", "self_attn.q_proj.weight"},
    {TensorRole::kWk, "attn_k.weight", "k_proj.weight", "self_attn.k_proj.weight"},
    {TensorRole::kWv, "attn_v.weight", "v_proj.weight", "self_attn.v_proj.weight"},
    {TensorRole::kBq, "attn_q.bias", "q_proj.bias", "self_attn.q_proj.bias"},
    {TensorRole::kBk, "attn_k.bias", "k_proj.bias", "self_attn.k_proj.bias"},
    {TensorRole::kBv, "attn_v.bias", "v_proj.bias", "self_attn.v_proj.bias"},
    {TensorRole::kWo, "attn_output.weight", "attn_out.weight", "self_attn.o_proj.weight"},
    {TensorRole::kFfnNorm, "ffn_norm.weight", "ff_norm.weight", "post_attention_layernorm.weight"},
    {TensorRole::kWgate, "ffn_gate.weight", "ff_proj.weight", "mlp.gate_proj.weight"},
    {TensorRole::kWup, "ffn_up.weight", "up_proj.weight", "mlp.up_proj.weight"},
    {TensorRole::kWdown, "ffn_down.weight", "ff_out.weight", "mlp.down_proj.weight"},
};

}  // namespace

std::string TensorName(NameScheme scheme, TensorRole role, size_t layer) {
  for (const Names& names : kModelNames) {
    if (names.role != role) continue;
    switch (scheme) {
      case NameScheme::kGguf: return names.gguf;
      case NameScheme::kHfLlada: return fmt::format("model.transformer.{}", names.hf_llada);
      case NameScheme::kHfDream: return names.hf_dream;
    }
  }
  for (const Names& names : kLayerNames) {
    if (names.role != role) continue;
    switch (scheme) {
      case NameScheme::kGguf: return fmt::format("blk.{}.{}", layer, names.gguf);
      case NameScheme::kHfLlada:
        return fmt::format("model.transformer.blocks.{}.{}", layer, names.hf_llada);
      case NameScheme::kHfDream: return fmt::format("model.layers.{}.{}", layer, names.hf_dream);
    }
  }
  SPA_CHECK(false);
  return {};
}

std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config) {
  const uint64_t d = config.model_dim, q = config.q_dim(), kv = config.kv_dim(),
                 ffn = config.ffn_dim, vocab = config.vocab_rows;
  std::vector<ExpectedTensor> tensors;
  tensors.push_back({TensorRole::kEmbedding, 0, {vocab, d}});
  for (size_t layer = 0; layer < config.num_layers; ++layer) {
    const auto add = [&](TensorRole role, std::vector<uint64_t> shape) {
      tensors.push_back({role, layer, std::move(shape)});
    };
    add(TensorRole::kAttnNorm, {d});
    add(TensorRole::kWq, {q, d});
    add(TensorRole::kWk, {kv, d});
    add(TensorRole::kWv, {kv, d});
    if (config.qkv_bias) {
      add(TensorRole::kBq, {q});
      add(TensorRole::kBk, {kv});
      add(TensorRole::kBv, {kv});
    }
    add(TensorRole::kWo, {d, q});
    add(TensorRole::kFfnNorm, {d});
    add(TensorRole::kWgate, {ffn, d});
    add(TensorRole::kWup, {ffn, d});
    add(TensorRole::kWdown, {d, ffn});
  }
  tensors.push_back({TensorRole::kFinalNorm, 0, {d}});
  if (!config.tied_head) tensors.push_back({TensorRole::kHead, 0, {vocab, d}});
  return tensors;
}

}  // namespace spa
