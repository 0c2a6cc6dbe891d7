#include "model/config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "file/quoted.h"
#include "model/added_tokens.h"
#include "model/family.h"

namespace spa {
namespace {

using Names = std::vector<std::string_view>;

bool Contains(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

template <typename Matches>
const Family* FindFamily(const Matches& matches) {
  const auto it = std::ranges::find_if(Families(), [&](const Family* f) { return matches(*f); });
  return it == Families().end() ? nullptr : *it;
}

std::string SupportedNames(const Names Family::*names) {
  Names all;
  for (const Family* family : Families()) {
    all.insert(all.end(), (family->*names).begin(), (family->*names).end());
  }
  std::ranges::sort(all);
  return fmt::format("{}", fmt::join(all, ", "));
}

const Family& FamilyOfFolder(const JsonConfig& json) {
  // Families share a model_type (LLaDA-MoE has LLaDA's): it counts only if there is nothing better.
  if (const auto architectures = json.Strings("architectures"); !architectures.empty()) {
    const std::string& architecture = architectures.front();
    const auto matches = [&](const Family& f) { return Contains(f.architectures, architecture); };
    if (const Family* family = FindFamily(matches)) return *family;
    throw Error("{}: the architecture is {}; this engine runs {}", json.where(),
                Quoted(architecture), SupportedNames(&Family::architectures));
  }
  const std::string type = json.String("model_type");
  const auto matches = [&](const Family& f) { return Contains(f.model_types, type); };
  if (const Family* family = FindFamily(matches)) return *family;
  throw Error("{}: 'model_type' is {}; this engine runs {}", json.where(), Quoted(type),
              SupportedNames(&Family::model_types));
}

const Family& FamilyOfGguf(const GgufFile& file, const std::string& name) {
  const auto matches = [&](const Family& f) {
    return f.name == name || Contains(f.gguf_names, name);
  };
  if (const Family* family = FindFamily(matches)) return *family;
  Names all;
  for (const Family* family : Families()) {
    all.push_back(family->name);
    all.insert(all.end(), family->gguf_names.begin(), family->gguf_names.end());
  }
  std::ranges::sort(all);
  throw Error("{}: the architecture is {}; this engine runs {}", file.name(), Quoted(name),
              fmt::join(all, ", "));
}

// Collects what different places say about the mask token and refuses files that contradict
// themselves.
class MaskId {
 public:
  explicit MaskId(std::string where) : where_(std::move(where)) {}

  void Says(const std::string& place, std::optional<TokenId> id) {
    if (!id) return;
    if (id_ && *id_ != *id) {
      throw Error("{}: {} says that the mask token is {}, {} says {}", where_, place_, *id_, place,
                  *id);
    }
    if (!id_) place_ = place;
    id_ = id;
  }
  bool known() const { return id_.has_value(); }
  TokenId id() const { return *id_; }

 private:
  std::string where_, place_;
  std::optional<TokenId> id_;
};

// What a folder is called. The download cache of the Hugging Face tools keeps a model under
// models--MAKER--NAME/snapshots/REVISION.
std::string FolderName(const std::filesystem::path& folder) {
  const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  const std::filesystem::path last = path.has_filename() ? path : path.parent_path();
  if (last.parent_path().filename() != "snapshots") return last.filename().string();
  const std::string name = last.parent_path().parent_path().filename().string();
  const size_t dashes = name.rfind("--");
  return dashes == std::string::npos ? name : name.substr(dashes + 2);
}

void AddStopIds(const std::vector<TokenId>& ids, ModelConfig& config) {
  for (const TokenId id : ids) {
    if (std::ranges::find(config.stop_ids, id) == config.stop_ids.end()) {
      config.stop_ids.push_back(id);
    }
  }
}

void CheckDecodeLengths(const ModelConfig& config, const std::string& where) {
  const DecodeDefaults& decode = config.decode;
  if (decode.gen_length < 1 || decode.gen_length > config.context_length) {
    throw Error("{}: the default canvas is {}, which the context of {} does not hold", where,
                decode.gen_length, config.context_length);
  }
  if (decode.block_length > decode.gen_length ||
      (decode.block_length > 0 && decode.gen_length % decode.block_length != 0)) {
    throw Error("{}: the default block is {}, which does not divide the canvas of {}", where,
                decode.block_length, decode.gen_length);
  }
}

double CheckedShare(double value, const std::string& where, const char* key) {
  if (value >= 0.0 && value <= 1.0) return value;
  throw Error("{}: '{}' is {}, not a number from 0 to 1", where, key, value);
}

void ReadGenerationConfig(const std::filesystem::path& folder, MaskId& mask, ModelConfig& config) {
  const std::filesystem::path path = folder / "generation_config.json";
  if (!std::filesystem::exists(path)) return;
  const JsonConfig json(path);
  mask.Says(path.filename().string(), json.Token("mask_token_id"));
  AddStopIds(json.Tokens("eos_token_id"), config);
  const auto gen_length = json.Uint("gen_length"), block_length = json.Uint("block_length");
  config.decode.gen_length = gen_length.value_or(config.decode.gen_length);
  config.decode.block_length = block_length.value_or(config.decode.block_length);
  if (gen_length && config.decode.block_length > *gen_length && !block_length) {
    config.decode.block_length = *gen_length;
  }
  if (gen_length || block_length) CheckDecodeLengths(config, path.string());
  if (const auto threshold = json.Number("first_threshold")) {
    config.decode.first_threshold = CheckedShare(*threshold, path.string(), "first_threshold");
  }
  config.single_turn = json.Bool("single_turn", false);
  config.question_forms = json.Strings("question_forms");
  config.knows = json.String("knows");
  if (const auto budget = json.Numbers("spa_budget")) {
    if (budget->size() != 4) throw Error("{}: 'spa_budget' must have four numbers", path.string());
    config.spa_budget.emplace();
    std::ranges::copy(*budget, config.spa_budget->begin());
  }
  config.spa_prompt = json.Bool("spa_prompt", false);
}

void ReadDiffusionKeys(const GgufFile& file, ModelConfig& config) {
  AttentionPattern& attention = config.attention;
  if (const std::string* kind = file.FindString("diffusion.attention")) {
    if (*kind != "full" && *kind != "block" && *kind != "causal") {
      throw Error("{}: 'diffusion.attention' is {}, neither full, block nor causal", file.name(),
                  Quoted(*kind));
    }
    attention.kind = *kind == "block"    ? AttentionKind::kBlocks
                     : *kind == "causal" ? AttentionKind::kCausal
                                         : AttentionKind::kFull;
  }
  if (const std::string* origin = file.FindString("diffusion.block_origin")) {
    if (*origin != "start" && *origin != "prompt_end") {
      throw Error("{}: 'diffusion.block_origin' is {}, neither start nor prompt_end", file.name(),
                  Quoted(*origin));
    }
    attention.origin = *origin == "start" ? BlockOrigin::kStart : BlockOrigin::kPromptEnd;
  }
  DecodeDefaults& decode = config.decode;
  const auto gen_length = file.FindUint("diffusion.gen_length");
  const auto block_length = file.FindUint("diffusion.block_length");
  decode.gen_length = gen_length.value_or(decode.gen_length);
  decode.block_length = block_length.value_or(decode.block_length);
  if (gen_length && decode.block_length > *gen_length && !block_length) {
    decode.block_length = *gen_length;
  }
  if (attention.kind != AttentionKind::kFull) {
    attention.block_length = block_length.value_or(attention.block_length);
  } else if (gen_length || block_length) {
    CheckDecodeLengths(config, file.name());
  }
  if (const auto threshold = file.FindFloat("diffusion.first_threshold")) {
    // The shortest number that is this float: 0.99, not 0.9900000095.
    decode.first_threshold =
        CheckedShare(std::stod(fmt::format("{}", static_cast<float>(*threshold))), file.name(),
                     "diffusion.first_threshold");
  }
  config.single_turn = file.FindBool("diffusion.single_turn").value_or(false);
  if (const auto* forms = file.FindStrings("diffusion.question_forms")) {
    config.question_forms.assign(forms->begin(), forms->end());
  }
  if (const std::string* knows = file.FindString("diffusion.knows")) config.knows = *knows;
  if (file.FindFloat(kBudgetKeys[0])) {
    config.spa_budget.emplace();
    for (size_t i = 0; i < kBudgetKeys.size(); ++i) {
      const auto value = file.FindFloat(kBudgetKeys[i]);
      if (!value) throw Error("{}: the metadata key '{}' is missing", file.name(), kBudgetKeys[i]);
      (*config.spa_budget)[i] = *value;
    }
  }
  config.spa_prompt = file.FindBool("spa.prompt").value_or(false);
}

std::optional<TokenId> TokenAt(const GgufFile& file, const char* key) {
  const auto id = file.FindUint(key);
  if (!id) return std::nullopt;
  if (*id > INT32_MAX)
    throw Error("{}: '{}' is {}, which is not a token id", file.name(), key, *id);
  return static_cast<TokenId>(*id);
}

}  // namespace

const std::array<const char*, 4> kBudgetKeys = {"spa.budget.peak_layer", "spa.budget.peak_ratio",
                                                "spa.budget.first_ratio", "spa.budget.last_ratio"};

ModelConfig ConfigFromGguf(const GgufFile& file) {
  const std::string* architecture = file.FindString("general.architecture");
  if (architecture == nullptr) {
    throw Error("{}: the metadata key 'general.architecture' is missing", file.name());
  }
  // diffuse-cpp writes one architecture for all its models.
  std::string family_name = *architecture;
  if (family_name == "diffuse") {
    const std::string* type = file.FindString("diffuse.model_type");
    family_name = type != nullptr ? *type : "llada";
  }
  const Family& family = FamilyOfGguf(file, family_name);
  ModelConfig config = family.base;
  config.family = family.name;
  const std::string* name = file.FindString("general.name");
  config.name = name != nullptr ? *name : std::filesystem::path(file.name()).stem().string();
  const Tensor* embedding = file.Find("token_embd.weight");
  if (embedding == nullptr) throw Error("{}: the tensor token_embd.weight is missing", file.name());
  config.vocab_rows = embedding->rows();
  config.tied_head = file.Find("output.weight") == nullptr;
  config.eos_id = TokenAt(file, "tokenizer.ggml.eos_token_id");
  config.bos_id = TokenAt(file, "tokenizer.ggml.bos_token_id");
  config.pad_id = TokenAt(file, "tokenizer.ggml.padding_token_id");
  family.read_gguf(GgufConfig(file, *architecture), config);
  if (config.rope_dim == 0) config.rope_dim = config.head_dim;
  for (const auto id : {config.eos_id, TokenAt(file, "tokenizer.ggml.eot_token_id")}) {
    if (id) AddStopIds({*id}, config);
  }
  ReadDiffusionKeys(file, config);

  MaskId mask(file.name());
  for (const char* key : {"tokenizer.ggml.mask_token_id", "diffuse.mask_token_id"}) {
    mask.Says(fmt::format("'{}'", key), TokenAt(file, key));
  }
  if (const auto* tokens = file.FindStrings("tokenizer.ggml.tokens")) {
    for (const std::string_view text : family.mask_texts) {
      const auto it = std::ranges::find(*tokens, text);
      if (it != tokens->end()) {
        mask.Says(fmt::format("the vocabulary ({})", text),
                  static_cast<TokenId>(it - tokens->begin()));
      }
    }
  }
  if (!mask.known() && family.mask_id >= 0) mask.Says("the family", family.mask_id);
  if (!mask.known() && !config.decode.noise) {
    throw Error("{}: the metadata key 'tokenizer.ggml.mask_token_id' is missing", file.name());
  }
  if (mask.known()) config.mask_id = mask.id();
  ValidateConfig(config, file.name());
  return config;
}

ModelConfig ConfigFromFolder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const JsonConfig json(path);
  const Family& family = FamilyOfFolder(json);
  ModelConfig config = family.base;
  config.family = family.name;
  config.name = FolderName(folder);
  if (config.name.empty()) config.name = family.name;
  config.eos_id = json.Token("eos_token_id");
  config.bos_id = json.Token("bos_token_id");
  config.pad_id = json.Token("pad_token_id");
  family.read_folder(json, config);
  if (config.rope_dim == 0) config.rope_dim = config.head_dim;
  AddStopIds(json.Tokens("eos_token_id"), config);
  if (config.eos_id) AddStopIds({*config.eos_id}, config);

  MaskId mask(folder.string());
  mask.Says(path.filename().string(), json.Token("mask_token_id"));
  ReadGenerationConfig(folder, mask, config);
  const AddedTokens added(folder);
  mask.Says("the tokenizer", added.mask_token());
  for (const std::string_view text : family.mask_texts) {
    mask.Says(fmt::format("the tokenizer ({})", text), added.Find(text));
  }
  if (!mask.known() && family.mask_id >= 0) mask.Says("the family", family.mask_id);
  if (!mask.known() && !config.decode.noise) {
    throw Error("{}: 'mask_token_id' is missing, and the tokenizer has no {}", path.string(),
                fmt::join(family.mask_texts, " or "));
  }
  if (mask.known()) config.mask_id = mask.id();
  ValidateConfig(config, path.string());
  return config;
}

namespace {

void ValidateExperts(const ModelConfig& config, const std::string& where) {
  const ExpertConfig& experts = config.experts;
  const auto refuse = [&](std::string_view what) { throw Error("{}: {}", where, what); };
  if (experts.count > 1 << 16) refuse(fmt::format("{} experts are too many", experts.count));
  if (experts.used < 1 || experts.used > experts.count) {
    refuse(fmt::format("{} of {} experts cannot be chosen", experts.used, experts.count));
  }
  if (experts.dim < 1 || experts.dim > 1 << 20) {
    refuse(fmt::format("an expert's width is {}, which no model of this kind has", experts.dim));
  }
  if (experts.shared_dim > 1 << 20) {
    refuse(fmt::format("the shared expert's width is {}", experts.shared_dim));
  }
  if (experts.groups < 1 || experts.count % experts.groups != 0) {
    refuse(fmt::format("{} experts cannot form {} groups", experts.count, experts.groups));
  }
  const size_t group_size = experts.count / experts.groups;
  if (experts.groups > 1 && group_size < 2) {
    refuse(fmt::format("groups of {} expert cannot be ranked by their two best", group_size));
  }
  if (experts.groups_used < 1 || experts.groups_used > experts.groups) {
    refuse(fmt::format("{} of {} groups of experts cannot be kept", experts.groups_used,
                       experts.groups));
  }
  if (experts.used > experts.groups_used * group_size) {
    refuse(fmt::format("{} experts cannot be chosen from {} groups of {}", experts.used,
                       experts.groups_used, group_size));
  }
  if (!(experts.scale > 0.0) || !std::isfinite(experts.scale)) {
    refuse(fmt::format("the experts' scale is {}", experts.scale));
  }
}

}  // namespace

void ValidateConfig(const ModelConfig& config, const std::string& where) {
  const auto check = [&](bool good, std::string_view what, uint64_t value) {
    if (!good)
      throw Error("{}: {} is {}, which is out of range for a model of this kind", where, what,
                  value);
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
  in_range("the rotating part of a head", config.rope_dim, config.head_dim);
  check(config.rope_dim % 2 == 0, "the rotating part of a head", config.rope_dim);
  if (config.has_dense(0)) in_range("the FFN width", config.ffn_dim, 1 << 20);
  if (config.experts.count > 0) ValidateExperts(config, where);
  in_range("the vocabulary size", config.vocab_rows, 1 << 24);
  in_range("the context length", config.context_length, 1 << 24);
  if (config.attention.kind != AttentionKind::kFull) {
    in_range("the block length", config.attention.block_length, config.context_length);
  }
  if (!config.layer_shapes.empty()) {
    check(config.layer_shapes.size() >= config.num_layers, "the number of described layers",
          config.layer_shapes.size());
    for (const LayerShape& shape : config.layer_shapes) {
      in_range("the number of KV heads", shape.num_kv_heads, config.num_heads);
      check(config.num_heads % shape.num_kv_heads == 0, "the number of KV heads",
            shape.num_kv_heads);
      in_range("the head size", shape.head_dim, 1024);
      check(shape.head_dim % 8 == 0, "the head size", shape.head_dim);
      check(shape.window <= 1 << 24, "the window", shape.window);
    }
    check(config.wide_rope_dim <= config.wide.head_dim && config.wide_rope_dim % 2 == 0,
          "the rotating part of a head", config.wide_rope_dim);
    if (!(config.wide_rope_theta > 1.0 && config.wide_rope_theta < 1e12)) {
      throw Error("{}: the RoPE base is {}", where, config.wide_rope_theta);
    }
  }
  if (config.spa_budget) {
    const auto [peak_layer, peak, first, last] = *config.spa_budget;
    const auto ratio = [](double value) { return value > 0.0 && value <= 1.0; };
    if (!(peak_layer >= 1.0 && peak_layer <= static_cast<double>(config.num_layers)) ||
        !ratio(peak) || !ratio(first) || !ratio(last)) {
      throw Error("{}: the budget of SPA-Cache is invalid", where);
    }
  }
  const auto check_token = [&](const char* what, std::optional<TokenId> id) {
    if (!id) return;
    check(*id >= 0 && static_cast<size_t>(*id) < config.vocab_rows, what,
          static_cast<uint64_t>(*id));
  };
  // Noise needs no mask.
  if (!config.decode.noise || config.mask_id >= 0) {
    check_token("the mask token's id", config.mask_id);
  }
  check_token("the end token's id", config.eos_id);
  check_token("the padding token's id", config.pad_id);
  check_token("the expand token's id", config.expand_id);
  if (config.mask_id == config.eos_id || config.mask_id == config.pad_id) {
    throw Error("{}: the token {} is both the mask and the end or the padding", where,
                config.mask_id);
  }
  if (!(config.norm_epsilon > 0.0f && config.norm_epsilon < 1.0f)) {
    throw Error("{}: the RMSNorm epsilon is {}", where, config.norm_epsilon);
  }
  if (!(config.rope_theta > 1.0 && config.rope_theta < 1e12)) {
    throw Error("{}: the RoPE base is {}", where, config.rope_theta);
  }
}

}  // namespace spa
