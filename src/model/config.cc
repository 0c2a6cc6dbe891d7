#include "model/config.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace spa {
namespace {

using nlohmann::json;

uint64_t RequireUint(const GgufFile& file, const std::string& key) {
  if (const auto value = file.FindUint(key)) return *value;
  throw Error("{}: the metadata key '{}' is missing", file.name(), key);
}

double RequireFloat(const GgufFile& file, const std::string& key) {
  if (const auto value = file.FindFloat(key)) return *value;
  throw Error("{}: the metadata key '{}' is missing", file.name(), key);
}

std::optional<TokenId> ToTokenId(std::optional<uint64_t> id) {
  if (!id || *id > INT32_MAX) return std::nullopt;
  return static_cast<TokenId>(*id);
}

json ReadJson(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("cannot open {}", path.string());
  json document = json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) throw Error("{} is not a JSON object", path.string());
  return document;
}

// One config.json, read by key with a type check that names the key.
class JsonConfig {
 public:
  JsonConfig(json document, std::string where)
      : document_(std::move(document)), where_(std::move(where)) {}

  // The first of two spellings that is present and not null.
  const json* Find(const char* key, const char* alias = nullptr) const {
    for (const char* name : {key, alias}) {
      if (name == nullptr) continue;
      const auto it = document_.find(name);
      if (it != document_.end() && !it->is_null()) return &*it;
    }
    return nullptr;
  }
  std::optional<uint64_t> Uint(const char* key, const char* alias = nullptr) const {
    const json* value = Find(key, alias);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_unsigned()) {
      throw Error("{}: '{}' is {}, expected a whole number", where_, key, value->dump());
    }
    return value->get<uint64_t>();
  }
  uint64_t RequiredUint(const char* key, const char* alias = nullptr) const {
    if (const auto value = Uint(key, alias)) return *value;
    throw Error("{}: '{}' is missing", where_, key);
  }
  double RequiredNumber(const char* key) const {
    const json* value = Find(key);
    if (value == nullptr || !value->is_number()) {
      throw Error("{}: '{}' is missing or not a number", where_, key);
    }
    return value->get<double>();
  }
  bool Bool(const char* key, bool absent, const char* alias = nullptr) const {
    const json* value = Find(key, alias);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) throw Error("{}: '{}' is not true or false", where_, key);
    return value->get<bool>();
  }
  std::string String(const char* key) const {
    const json* value = Find(key);
    return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
  }
  std::optional<TokenId> Token(const char* key) const {
    const json* value = Find(key);
    if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
    return ToTokenId(value->get<uint64_t>());
  }
  // Refuses variants of the LLaDA code base that this engine does not compute.
  void Refuse(bool unsupported, const char* key) const {
    if (unsupported) {
      throw Error("{}: '{}' is {}; this engine runs models with the published LLaDA-8B structure",
                  where_, key, Find(key)->dump());
    }
  }
  const std::string& where() const { return where_; }

 private:
  json document_;
  std::string where_;
};

void RefuseUnsupportedLlada(const JsonConfig& config) {
  config.Refuse(config.Bool("alibi", false), "alibi");
  config.Refuse(!config.Bool("rope", true), "rope");
  config.Refuse(config.Find("block_type") && config.String("block_type") != "llama", "block_type");
  config.Refuse(config.Find("layer_norm_type") && config.String("layer_norm_type") != "rms",
                "layer_norm_type");
  config.Refuse(config.Find("activation_type") && config.String("activation_type") != "silu",
                "activation_type");
  config.Refuse(config.Bool("attention_layer_norm", false), "attention_layer_norm");
  config.Refuse(config.Bool("include_bias", false), "include_bias");
  config.Refuse(config.Bool("include_qkv_bias", false), "include_qkv_bias");
  config.Refuse(config.Bool("input_emb_norm", false), "input_emb_norm");
  config.Refuse(config.Bool("scale_logits", false), "scale_logits");
  config.Refuse(config.Uint("block_group_size").value_or(1) != 1, "block_group_size");
}

}  // namespace

const std::array<const char*, 4> kBudgetKeys = {"spa.budget.peak_layer", "spa.budget.peak_ratio",
                                                "spa.budget.first_ratio", "spa.budget.last_ratio"};

std::string_view FamilyName(Family family) {
  return family == Family::kLlada ? "llada" : "dream";
}

ModelConfig ConfigFromGguf(const GgufFile& file) {
  const std::string* architecture = file.FindString("general.architecture");
  if (architecture == nullptr) {
    throw Error("{}: the metadata key 'general.architecture' is missing", file.name());
  }
  ModelConfig config;
  std::string family = *architecture;
  // diffuse-cpp writes one architecture for both models, without llama.cpp's row permutation.
  const bool diffuse = *architecture == "diffuse";
  if (diffuse) {
    const std::string* type = file.FindString("diffuse.model_type");
    family = type != nullptr ? *type : "llada";
  }
  if (family == "llada") {
    config.family = Family::kLlada;
    config.interleaved_qk = !diffuse;
  } else if (family == "dream") {
    config.family = Family::kDream;
    config.qkv_bias = true;
  } else {
    throw Error("{}: the architecture is '{}'; this engine runs 'llada' and 'dream'", file.name(),
                family);
  }
  const std::string prefix = *architecture + ".";
  config.num_layers = RequireUint(file, prefix + "block_count");
  config.context_length = RequireUint(file, prefix + "context_length");
  config.model_dim = RequireUint(file, prefix + "embedding_length");
  config.ffn_dim = RequireUint(file, prefix + "feed_forward_length");
  config.num_heads = RequireUint(file, prefix + "attention.head_count");
  config.num_kv_heads =
      file.FindUint(prefix + "attention.head_count_kv").value_or(config.num_heads);
  config.norm_epsilon =
      static_cast<float>(RequireFloat(file, prefix + "attention.layer_norm_rms_epsilon"));
  config.rope_theta = RequireFloat(file, prefix + "rope.freq_base");
  config.head_dim = file.FindUint(prefix + "attention.key_length")
                        .value_or(config.num_heads > 0 ? config.model_dim / config.num_heads : 0);
  if (file.FindUint(prefix + "rope.dimension_count").value_or(config.head_dim) !=
      config.head_dim) {
    throw Error("{}: RoPE on part of a head is not supported", file.name());
  }
  const Tensor* embedding = file.Find("token_embd.weight");
  if (embedding == nullptr) throw Error("{}: the tensor token_embd.weight is missing", file.name());
  config.vocab_rows = embedding->rows();
  config.tied_head = file.Find("output.weight") == nullptr;
  config.logit_shift = diffuse ? config.family == Family::kDream
                               : file.FindBool("diffusion.shift_logits")
                                     .value_or(true);  // llama.cpp's rule for an absent key
  const auto mask = ToTokenId(file.FindUint("tokenizer.ggml.mask_token_id"));
  const auto mask_of_diffuse = ToTokenId(file.FindUint("diffuse.mask_token_id"));
  if (!mask && !mask_of_diffuse) {
    throw Error("{}: the metadata key 'tokenizer.ggml.mask_token_id' is missing", file.name());
  }
  config.mask_id = mask ? *mask : *mask_of_diffuse;
  config.eos_id = ToTokenId(file.FindUint("tokenizer.ggml.eos_token_id"));
  config.bos_id = ToTokenId(file.FindUint("tokenizer.ggml.bos_token_id"));
  config.pad_id = ToTokenId(file.FindUint("tokenizer.ggml.padding_token_id"));
  config.gen_length = file.FindUint("diffusion.gen_length");
  config.block_length = file.FindUint("diffusion.block_length");
  if (file.FindFloat(kBudgetKeys[0])) {
    config.spa_budget.emplace();
    for (size_t i = 0; i < 4; ++i) (*config.spa_budget)[i] = RequireFloat(file, kBudgetKeys[i]);
  }
  const std::string* name = file.FindString("general.name");
  config.name = name != nullptr ? *name : std::filesystem::path(file.name()).stem().string();
  ValidateConfig(config, file.name());
  return config;
}

ModelConfig ConfigFromFolder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const JsonConfig json_config(ReadJson(path), path.string());
  ModelConfig config;
  const std::string type = json_config.String("model_type");
  if (type == "llada") {
    config.family = Family::kLlada;
    RefuseUnsupportedLlada(json_config);
  } else if (type == "Dream" || type == "dream") {
    config.family = Family::kDream;
    config.qkv_bias = true;
    config.logit_shift = true;
    json_config.Refuse(json_config.Find("rope_scaling") != nullptr, "rope_scaling");
  } else {
    throw Error("{}: 'model_type' is '{}'; this engine runs 'llada' and 'Dream'", path.string(),
                type);
  }
  config.num_layers = json_config.RequiredUint("n_layers", "num_hidden_layers");
  config.model_dim = json_config.RequiredUint("d_model", "hidden_size");
  config.num_heads = json_config.RequiredUint("n_heads", "num_attention_heads");
  config.num_kv_heads =
      json_config.Uint("n_kv_heads", "num_key_value_heads").value_or(config.num_heads);
  config.head_dim = config.num_heads > 0 ? config.model_dim / config.num_heads : 0;
  config.ffn_dim = json_config.RequiredUint("mlp_hidden_size", "intermediate_size");
  config.context_length =
      json_config.RequiredUint("max_sequence_length", "max_position_embeddings");
  config.vocab_rows = json_config.Uint("embedding_size").value_or(
      json_config.RequiredUint("vocab_size"));
  config.norm_epsilon = static_cast<float>(json_config.RequiredNumber("rms_norm_eps"));
  config.rope_theta = json_config.RequiredNumber("rope_theta");
  config.tied_head = json_config.Bool("weight_tying", false, "tie_word_embeddings");
  const auto mask = json_config.Token("mask_token_id");
  if (!mask) throw Error("{}: 'mask_token_id' is missing", path.string());
  config.mask_id = *mask;
  config.eos_id = json_config.Token("eos_token_id");
  config.bos_id = json_config.Token("bos_token_id");
  config.pad_id = json_config.Token("pad_token_id");
  if (const auto generation = folder / "generation_config.json"; std::filesystem::exists(generation)) {
    const JsonConfig defaults(ReadJson(generation), generation.string());
    config.gen_length = defaults.Uint("gen_length");
    config.block_length = defaults.Uint("block_length");
    if (const json* budget = defaults.Find("spa_budget")) {
      if (!budget->is_array() || budget->size() != 4 ||
          !std::ranges::all_of(*budget, [](const json& item) { return item.is_number(); })) {
        throw Error("{}: 'spa_budget' must be a list of four numbers", generation.string());
      }
      config.spa_budget = budget->get<std::array<double, 4>>();
    }
  }
  config.name = std::filesystem::absolute(folder).lexically_normal().filename().string();
  if (config.name.empty()) config.name = FamilyName(config.family);
  ValidateConfig(config, path.string());
  return config;
}

void ValidateConfig(const ModelConfig& config, const std::string& where) {
  const auto check = [&](bool good, std::string_view what, uint64_t value) {
    if (!good) throw Error("{}: {} is {}, which no model of this kind has", where, what, value);
  };
  const auto in_range = [&](std::string_view what, uint64_t value, uint64_t most) {
    check(value >= 1 && value <= most, what, value);
  };
  in_range("the number of layers", config.num_layers, 1024);
  in_range("the model width", config.model_dim, 1 << 17);
  in_range("the number of heads", config.num_heads, 4096);
  in_range("the number of KV heads", config.num_kv_heads, config.num_heads);
  check(config.num_heads % config.num_kv_heads == 0, "the number of KV heads", config.num_kv_heads);
  in_range("the head size", config.head_dim, 1024);
  check(config.head_dim % 8 == 0, "the head size", config.head_dim);
  in_range("the FFN width", config.ffn_dim, 1 << 20);
  in_range("the vocabulary size", config.vocab_rows, 1 << 24);
  in_range("the context length", config.context_length, 1 << 24);
  if (config.gen_length) in_range("the default canvas", *config.gen_length, config.context_length);
  if (config.block_length) {
    in_range("the default block", *config.block_length, config.gen_length.value_or(0));
    check(*config.gen_length % *config.block_length == 0, "the default block", *config.block_length);
  }
  if (config.spa_budget) {
    const auto [peak_layer, peak, first, last] = *config.spa_budget;
    const auto ratio = [](double value) { return value > 0.0 && value <= 1.0; };
    if (!(peak_layer >= 1.0 && peak_layer <= static_cast<double>(config.num_layers)) ||
        !ratio(peak) || !ratio(first) || !ratio(last)) {
      throw Error("{}: the budget of SPA-Cache makes no sense", where);
    }
  }
  const auto check_token = [&](const char* what, TokenId id) {
    check(id >= 0 && static_cast<size_t>(id) < config.vocab_rows, what, static_cast<uint64_t>(id));
  };
  check_token("the mask token's id", config.mask_id);
  if (config.eos_id) check_token("the end token's id", *config.eos_id);
  if (config.pad_id) check_token("the padding token's id", *config.pad_id);
  if (!(config.norm_epsilon > 0.0f && config.norm_epsilon < 1.0f)) {
    throw Error("{}: the RMSNorm epsilon is {}", where, config.norm_epsilon);
  }
  if (!(config.rope_theta > 1.0 && config.rope_theta < 1e12)) {
    throw Error("{}: the RoPE base is {}", where, config.rope_theta);
  }
}

}  // namespace spa
