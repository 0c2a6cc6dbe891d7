#include "model/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace spa {
namespace {

using enum TensorRole;

constexpr std::pair<TensorRole, std::string_view> kGgufNameList[] = {
    {kEmbedding, "token_embd.weight"},
    {kFinalNorm, "output_norm.weight"},
    {kConditionNorm, "self_cond_pre_norm.weight"},
    {kConditionGate, "self_cond_gate.weight"},
    {kConditionUp, "self_cond_up.weight"},
    {kConditionDown, "self_cond_down.weight"},
    {kHead, "output.weight"},
    {kAttnNorm, "attn_norm.weight"},
    {kWq, "attn_q.weight"},
    {kWk, "attn_k.weight"},
    {kWv, "attn_v.weight"},
    {kBq, "attn_q.bias"},
    {kBk, "attn_k.bias"},
    {kBv, "attn_v.bias"},
    {kQNorm, "attn_q_norm.weight"},
    {kKNorm, "attn_k_norm.weight"},
    {kWo, "attn_output.weight"},
    {kFfnNorm, "ffn_norm.weight"},
    {kPostAttnNorm, "post_attention_norm.weight"},
    {kPostFfnNorm, "post_ffw_norm.weight"},
    {kPostDenseNorm, "post_ffw_norm_1.weight"},
    {kExpertNorm, "pre_ffw_norm_2.weight"},
    {kPostExpertNorm, "post_ffw_norm_2.weight"},
    {kLayerScale, "layer_output_scale.weight"},
    {kEncoderScale, "enc_layer_output_scale.weight"},
    {kWgate, "ffn_gate.weight"},
    {kWup, "ffn_up.weight"},
    {kWdown, "ffn_down.weight"},
    {kRouter, "ffn_gate_inp.weight"},
    {kRouterBias, "exp_probs_b.bias"},
    {kRouterScale, "ffn_gate_inp.scale"},
    {kExpertScale, "ffn_down_exps.scale"},
    {kSharedGate, "ffn_gate_shexp.weight"},
    {kSharedUp, "ffn_up_shexp.weight"},
    {kSharedDown, "ffn_down_shexp.weight"},
    {kExpertGate, "ffn_gate_exps.weight"},
    {kExpertUp, "ffn_up_exps.weight"},
    {kExpertDown, "ffn_down_exps.weight"},
    {kWqkv, "attn_qkv.weight"},
    {kExpertGateUp, "ffn_gate_up_exps.weight"},
};
constexpr std::pair<TensorRole, std::string_view> kQwenNameList[] = {
    {kEmbedding, "model.embed_tokens.weight"},
    {kFinalNorm, "model.norm.weight"},
    {kHead, "lm_head.weight"},
    {kAttnNorm, "input_layernorm.weight"},
    {kWq, "self_attn.q_proj.weight"},
    {kWk, "self_attn.k_proj.weight"},
    {kWv, "self_attn.v_proj.weight"},
    {kBq, "self_attn.q_proj.bias"},
    {kBk, "self_attn.k_proj.bias"},
    {kBv, "self_attn.v_proj.bias"},
    {kQNorm, "self_attn.q_norm.weight"},
    {kKNorm, "self_attn.k_norm.weight"},
    {kWo, "self_attn.o_proj.weight"},
    {kFfnNorm, "post_attention_layernorm.weight"},
    {kWgate, "mlp.gate_proj.weight"},
    {kWup, "mlp.up_proj.weight"},
    {kWdown, "mlp.down_proj.weight"},
    {kRouter, "mlp.gate.weight"},
    {kSharedGate, "shared_expert.gate_proj.weight"},
    {kSharedUp, "shared_expert.up_proj.weight"},
    {kSharedDown, "shared_expert.down_proj.weight"},
    {kExpertGate, "mlp.experts.{}.gate_proj.weight"},
    {kExpertUp, "mlp.experts.{}.up_proj.weight"},
    {kExpertDown, "mlp.experts.{}.down_proj.weight"},
};

bool IsOfModel(TensorRole role) { return role <= kHead; }
bool IsOfExpert(TensorRole role) { return role >= kExpertGate && role <= kExpertDown; }

std::string_view Pattern(const TensorNames& names, TensorRole role) {
  const auto it =
      std::ranges::find(names.names, role, [](const auto& entry) { return entry.first; });
  return it == names.names.end() ? std::string_view() : it->second;
}

}  // namespace

constexpr TensorNames kGgufNames = {.layer = "blk.{}.", .names = kGgufNameList};
constexpr TensorNames kQwenNames = {.layer = "model.layers.{}.", .names = kQwenNameList};

std::string TensorNames::Name(TensorRole role, size_t layer_index, size_t expert) const {
  const std::string_view pattern = Pattern(*this, role);
  if (pattern.empty()) return {};
  if (IsOfModel(role)) return std::string(pattern);
  if (!IsOfExpert(role) && pattern.find("{}") != std::string_view::npos) {
    return fmt::format(fmt::runtime(pattern), layer_index);
  }
  const std::string prefix = fmt::format(fmt::runtime(layer), layer_index);
  return prefix +
         (IsOfExpert(role) ? fmt::format(fmt::runtime(pattern), expert) : std::string(pattern));
}

std::vector<uint64_t> ShapeOf(const ModelConfig& config, TensorRole role, size_t layer) {
  const uint64_t d = config.model_dim, q = config.q_dim(layer), kv = config.kv_dim(layer),
                 ffn = config.ffn_dim, vocab = config.vocab_rows, expert = config.experts.dim,
                 shared = config.experts.shared_dim;
  switch (role) {
    case kEmbedding:
    case kHead:
      return {vocab, d};
    case kFinalNorm:
    case kAttnNorm:
    case kFfnNorm:
    case kPostAttnNorm:
    case kPostFfnNorm:
    case kPostDenseNorm:
    case kExpertNorm:
    case kPostExpertNorm:
    case kConditionNorm:
    case kRouterScale:
      return {d};
    case kLayerScale:
    case kEncoderScale:
      return {1};
    case kWq:
      return {q, d};
    case kWk:
    case kWv:
      return {kv, d};
    case kWqkv:
      return {q + 2 * kv, d};
    case kBq:
      return {q};
    case kBk:
    case kBv:
      return {kv};
    case kQNorm:
    case kKNorm:
      return {config.shape(layer).head_dim};
    case kWo:
      return {d, q};
    case kWgate:
    case kWup:
    case kConditionGate:
    case kConditionUp:
      return {ffn, d};
    case kWdown:
    case kConditionDown:
      return {d, ffn};
    case kRouter:
      return {config.experts.count, d};
    case kRouterBias:
    case kExpertScale:
      return {config.experts.count};
    case kSharedGate:
    case kSharedUp:
      return {shared, d};
    case kSharedDown:
      return {d, shared};
    case kExpertGate:
    case kExpertUp:
      return {expert, d};
    case kExpertDown:
      return {d, expert};
    case kExpertGateUp:
      return {config.experts.count, 2 * expert, d};
  }
  SPA_CHECK(false);
  return {};
}

std::vector<StoredTensor> StoredTensors(const ModelConfig& config, const TensorNames& names,
                                        bool fused_qkv) {
  std::vector<StoredTensor> tensors;
  size_t layer = 0;
  const auto add = [&](TensorRole role, size_t expert = 0) {
    tensors.push_back({.name = names.Name(role, layer, expert),
                       .shape = ShapeOf(config, role, layer),
                       .parts = {{role, layer, expert}}});
  };
  const auto add_experts = [&](TensorRole role) {
    if (Pattern(names, role).find("{}") != std::string_view::npos) {
      for (size_t e = 0; e < config.experts.count; ++e) add(role, e);
      return;
    }
    add(role);
    StoredTensor& all = tensors.back();
    all.shape.insert(all.shape.begin(), config.experts.count);
    for (size_t e = 1; e < config.experts.count; ++e) all.parts.push_back({role, layer, e});
  };
  const auto add_gate_up = [&] {
    add(kExpertGateUp);
    std::vector<TensorKey>& parts = tensors.back().parts;
    parts.clear();
    for (size_t e = 0; e < config.experts.count; ++e) {
      parts.push_back({kExpertGate, layer, e});
      parts.push_back({kExpertUp, layer, e});
    }
  };
  add(kEmbedding);
  if (config.self_conditioning) {
    for (const TensorRole role : {kConditionNorm, kConditionGate, kConditionUp, kConditionDown}) {
      add(role);
    }
  }
  for (; layer < config.num_layers; ++layer) {
    add(kAttnNorm);
    if (fused_qkv) {
      add(kWqkv);
      tensors.back().parts = {{kWq, layer}, {kWk, layer}, {kWv, layer}};
    } else {
      for (const TensorRole role : {kWq, kWk}) add(role);
      if (!config.shape(layer).values_are_keys) add(kWv);
    }
    if (config.qkv_bias) {
      for (const TensorRole role : {kBq, kBk, kBv}) add(role);
    }
    if (config.qk_norm) {
      for (const TensorRole role : {kQNorm, kKNorm}) add(role);
    }
    add(kWo);
    add(kFfnNorm);
    if (config.post_norms) {
      for (const TensorRole role : {kPostAttnNorm, kPostFfnNorm}) add(role);
    }
    if (config.layer_scales) {
      for (const TensorRole role : {kLayerScale, kEncoderScale}) add(role);
    }
    if (config.has_dense(layer)) {
      for (const TensorRole role : {kWgate, kWup, kWdown}) add(role);
    }
    if (!config.has_experts(layer)) continue;
    if (config.experts.beside_dense) {
      for (const TensorRole role : {kPostDenseNorm, kExpertNorm, kPostExpertNorm}) add(role);
    }
    add(kRouter);
    if (config.experts.scaled) {
      for (const TensorRole role : {kRouterScale, kExpertScale}) add(role);
    }
    if (config.experts.bias) add(kRouterBias);
    if (config.experts.shared_dim > 0) {
      for (const TensorRole role : {kSharedGate, kSharedUp, kSharedDown}) add(role);
    }
    if (config.experts.fused_gate_up) {
      add_gate_up();
    } else {
      for (const TensorRole role : {kExpertGate, kExpertUp}) add_experts(role);
    }
    add_experts(kExpertDown);
  }
  layer = 0;
  add(kFinalNorm);
  if (!config.tied_head) add(kHead);
  return tensors;
}

}  // namespace spa
