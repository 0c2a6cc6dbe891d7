#include "model/config_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/mapped_file.h"
#include "model/tensor_names.h"

namespace spa {

using Json = nlohmann::json;

JsonConfig::JsonConfig(const std::filesystem::path& path) : where_(path.string()) {
  const MappedFile file(path);
  CheckJsonDepth(file.text(), where_);
  auto document =
      std::make_shared<Json>(Json::parse(file.text(), nullptr, /*allow_exceptions=*/false));
  if (!document->is_object()) throw Error("{} is not a JSON object", where_);
  document_ = std::move(document);
}

const Json* JsonConfig::Find(const char* key, const char* alias) const {
  for (const char* name : {key, alias}) {
    if (name == nullptr) continue;
    const auto it = document_->find(name);
    if (it != document_->end() && !it->is_null()) return &*it;
  }
  return nullptr;
}

std::optional<uint64_t> JsonConfig::Uint(const char* key, const char* alias) const {
  const Json* value = Find(key, alias);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned()) {
    throw Error("{}: '{}' is {}, expected a whole number", where_, key, value->dump());
  }
  return value->get<uint64_t>();
}

uint64_t JsonConfig::RequiredUint(const char* key, const char* alias) const {
  if (const auto value = Uint(key, alias)) return *value;
  throw Error("{}: '{}' is missing", where_, key);
}

std::optional<double> JsonConfig::Number(const char* key) const {
  const Json* value = Find(key, nullptr);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) throw Error("{}: '{}' is not a number", where_, key);
  return value->get<double>();
}

double JsonConfig::RequiredNumber(const char* key) const {
  if (const auto value = Number(key)) return *value;
  throw Error("{}: '{}' is missing", where_, key);
}

std::optional<std::vector<double>> JsonConfig::Numbers(const char* key) const {
  const Json* value = Find(key, nullptr);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array() ||
      !std::ranges::all_of(*value, [](const Json& item) { return item.is_number(); })) {
    throw Error("{}: '{}' is not a list of numbers", where_, key);
  }
  return value->get<std::vector<double>>();
}

bool JsonConfig::Bool(const char* key, bool absent, const char* alias) const {
  const Json* value = Find(key, alias);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) throw Error("{}: '{}' is not true or false", where_, key);
  return value->get<bool>();
}

std::string JsonConfig::String(const char* key) const {
  const Json* value = Find(key, nullptr);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::vector<std::string> JsonConfig::Strings(const char* key) const {
  const Json* value = Find(key, nullptr);
  std::vector<std::string> strings;
  if (value == nullptr || !value->is_array()) return strings;
  for (const Json& item : *value) {
    if (item.is_string()) strings.push_back(item.get<std::string>());
  }
  return strings;
}

std::vector<TokenId> JsonConfig::Tokens(const char* key) const {
  const Json* value = Find(key, nullptr);
  std::vector<TokenId> ids;
  if (value == nullptr) return ids;
  const auto add = [&](const Json& item) {
    if (!item.is_number_integer()) {
      throw Error("{}: '{}' is {}, expected a token id", where_, key, value->dump());
    }
    const auto id = item.get<int64_t>();
    if (id > INT32_MAX) throw Error("{}: '{}' is {}, which is not a token id", where_, key, id);
    if (id >= 0) ids.push_back(static_cast<TokenId>(id));  // some write -1 for none
  };
  if (!value->is_array()) {
    add(*value);
    return ids;
  }
  constexpr size_t kMost = 1000;  // models have one to three; each is compared with the others
  if (value->size() > kMost) {
    throw Error("{}: '{}' lists {} tokens, expected {} at most", where_, key, value->size(), kMost);
  }
  for (const Json& item : *value) add(item);
  return ids;
}

std::optional<TokenId> JsonConfig::Token(const char* key) const {
  const std::vector<TokenId> ids = Tokens(key);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

std::optional<JsonConfig> JsonConfig::Object(const char* key) const {
  const Json* value = Find(key, nullptr);
  if (value == nullptr || !value->is_object()) return std::nullopt;
  return JsonConfig(std::make_shared<Json>(*value), where_ + ": " + key);
}

void JsonConfig::Refuse(const char* key, const std::string& wanted) const {
  throw Error("{}: '{}' is {}; this engine runs models of this family with {}", where_, key,
              Find(key, nullptr)->dump(), wanted);
}

void JsonConfig::Expect(const char* key, bool value) const {
  if (Bool(key, value) != value) Refuse(key, value ? "true" : "false");
}

void JsonConfig::Expect(const char* key, const char* value) const {
  if (Has(key) && String(key) != value) Refuse(key, fmt::format("\"{}\"", value));
}

void JsonConfig::Expect(const char* key, uint64_t value) const {
  if (Uint(key).value_or(value) != value) Refuse(key, fmt::format("{}", value));
}

void JsonConfig::ExpectAbsent(const char* key) const {
  if (Has(key)) Refuse(key, "null");
}

uint64_t GgufConfig::RequiredUint(const char* key) const {
  if (const auto value = Uint(key)) return *value;
  throw Error("{}: the metadata key '{}{}' is missing", file_.name(), prefix_, key);
}

std::vector<uint64_t> GgufConfig::Uints(const char* key) const {
  const GgufValue* value = file_.FindValue(prefix_ + key);
  if (value == nullptr) return {};
  return std::visit(
      [&](const auto& list) -> std::vector<uint64_t> {
        using List = std::decay_t<decltype(list)>;
        if constexpr (std::is_same_v<List, std::vector<uint64_t>> ||
                      std::is_same_v<List, std::vector<int64_t>> ||
                      std::is_same_v<List, std::vector<bool>>) {
          return {list.begin(), list.end()};
        } else {
          throw Error("{}: the metadata key '{}{}' is not a list of numbers", file_.name(), prefix_,
                      key);
        }
      },
      *value);
}

double GgufConfig::RequiredNumber(const char* key) const {
  if (const auto value = Number(key)) return *value;
  throw Error("{}: the metadata key '{}{}' is missing", file_.name(), prefix_, key);
}

void ReadQwenFolder(const JsonConfig& json, ModelConfig& config) {
  json.ExpectAbsent("rope_scaling");
  json.Expect("use_sliding_window", false);
  json.Expect("attention_bias", false);
  json.Expect("hidden_act", "silu");
  for (const std::string& type : json.Strings("layer_types")) {
    if (type != "full_attention") {
      throw Error(
          "{}: 'layer_types' has \"{}\"; this engine runs models of this family with "
          "full_attention",
          json.where(), type);
    }
  }
  config.num_layers = json.RequiredUint("num_hidden_layers");
  config.model_dim = json.RequiredUint("hidden_size");
  config.num_heads = json.RequiredUint("num_attention_heads");
  config.num_kv_heads = json.Uint("num_key_value_heads").value_or(config.num_heads);
  config.head_dim = json.Uint("head_dim")
                        .value_or(config.num_heads > 0 ? config.model_dim / config.num_heads : 0);
  config.ffn_dim = json.Uint("intermediate_size").value_or(0);
  config.context_length = json.RequiredUint("max_position_embeddings");
  config.vocab_rows = json.RequiredUint("vocab_size");
  config.norm_epsilon = static_cast<float>(json.RequiredNumber("rms_norm_eps"));
  config.rope_theta = json.RequiredNumber("rope_theta");
  config.tied_head = json.Bool("tie_word_embeddings", false);
}

void ReadQwenExperts(const JsonConfig& json, ModelConfig& config) {
  json.Expect("decoder_sparse_step", uint64_t{1});
  if (const auto dense = json.Numbers("mlp_only_layers"); dense && !dense->empty()) {
    throw Error(
        "{}: 'mlp_only_layers' has dense layers; this engine runs models of this family "
        "with experts in every layer",
        json.where());
  }
  config.ffn_dim = 0;  // intermediate_size has no layer
  config.experts.count = json.RequiredUint("num_experts");
  config.experts.used = json.RequiredUint("num_experts_per_tok");
  config.experts.dim = json.RequiredUint("moe_intermediate_size");
  config.experts.renormalise = json.Bool("norm_topk_prob", config.experts.renormalise);
}

void ReadLlamaGguf(const GgufConfig& gguf, ModelConfig& config) {
  const GgufFile& file = gguf.file();
  config.num_layers = gguf.RequiredUint("block_count");
  config.context_length = gguf.RequiredUint("context_length");
  config.model_dim = gguf.RequiredUint("embedding_length");
  config.num_heads = gguf.RequiredUint("attention.head_count");
  config.num_kv_heads = gguf.Uint("attention.head_count_kv").value_or(config.num_heads);
  config.norm_epsilon = static_cast<float>(gguf.RequiredNumber("attention.layer_norm_rms_epsilon"));
  config.rope_theta = gguf.RequiredNumber("rope.freq_base");
  config.head_dim = gguf.Uint("attention.key_length")
                        .value_or(config.num_heads > 0 ? config.model_dim / config.num_heads : 0);
  if (gguf.Uint("attention.value_length").value_or(config.head_dim) != config.head_dim) {
    throw Error("{}: keys and values of different sizes are not supported", file.name());
  }
  config.rope_dim = gguf.Uint("rope.dimension_count").value_or(config.head_dim);
  ExpertConfig& experts = config.experts;
  experts.count = gguf.Uint("expert_count").value_or(0);
  experts.first_dense_layers = gguf.Uint("leading_dense_block_count").value_or(0);
  if (!config.has_experts(0)) config.ffn_dim = gguf.RequiredUint("feed_forward_length");
  if (experts.count > 0) {
    experts.used = gguf.RequiredUint("expert_used_count");
    experts.dim = gguf.RequiredUint("expert_feed_forward_length");
    experts.bias =
        file.Find(kGgufNames.Name(TensorRole::kRouterBias, experts.first_dense_layers)) != nullptr;
    if (gguf.Uint("expert_shared_count").value_or(0) > 0) {
      experts.shared_dim = gguf.Uint("expert_shared_feed_forward_length")
                               .value_or(experts.dim * *gguf.Uint("expert_shared_count"));
    }
    experts.groups = gguf.Uint("expert_group_count").value_or(1);
    experts.groups_used = gguf.Uint("expert_group_used_count").value_or(experts.groups);
    if (const auto function = gguf.Uint("expert_gating_func")) {
      if (*function != 1 && *function != 2) {
        throw Error(
            "{}: the router's function is number {}; this engine has 1 (softmax) and 2 "
            "(sigmoid)",
            file.name(), *function);
      }
      experts.router = *function == 2 ? RouterKind::kSigmoid : RouterKind::kSoftmax;
    }
    experts.renormalise = gguf.Bool("expert_weights_norm").value_or(experts.renormalise);
    experts.scale = gguf.Number("expert_weights_scale").value_or(experts.scale);
  }
  config.logit_shift = file.FindBool("diffusion.shift_logits").value_or(config.logit_shift);
}

}  // namespace spa
