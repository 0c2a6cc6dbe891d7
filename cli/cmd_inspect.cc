// spa inspect: what a model file holds, without loading its weights.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "engine/memory.h"

namespace spa::cli {
namespace {

struct InspectFlags {
  std::string model;
  bool json = false, tensors = false;
};

struct TypeTotal {
  size_t tensors = 0;
  uint64_t parameters = 0, bytes = 0;
};

std::vector<std::pair<std::string, uint64_t>> Numbers(const ModelConfig& config) {
  std::vector<std::pair<std::string, uint64_t>> numbers = {
      {"layers", config.num_layers},  {"width", config.model_dim},
      {"heads", config.num_heads},    {"kv_heads", config.num_kv_heads},
      {"head_size", config.head_dim},
  };
  const auto add = [&](const char* name, uint64_t value) { numbers.emplace_back(name, value); };
  if (config.rope_dim != config.head_dim) add("rotating", config.rope_dim);
  if (config.ffn_dim > 0) add("ffn_width", config.ffn_dim);
  if (const ExpertConfig& experts = config.experts; experts.count > 0) {
    add("experts", experts.count);
    add("experts_used", experts.used);
    add("expert_width", experts.dim);
    if (experts.shared_dim > 0) add("shared_width", experts.shared_dim);
    if (experts.first_dense_layers > 0) add("dense_layers", experts.first_dense_layers);
  }
  add("vocabulary", config.vocab_rows);
  add("context", config.context_length);
  if (config.mask_id >= 0) add("mask_id", static_cast<uint64_t>(config.mask_id));
  return numbers;
}

std::string AttentionText(const AttentionPattern& attention) {
  if (attention.kind == AttentionKind::kFull) return "full";
  if (attention.kind == AttentionKind::kCausal) {
    return fmt::format("causal, canvases of {}", attention.block_length);
  }
  return fmt::format("blocks of {}, counted from the {}", attention.block_length,
                     attention.origin == BlockOrigin::kStart ? "start" : "prompt's end");
}

std::string RouterText(const ExpertConfig& experts) {
  std::string text = experts.router == RouterKind::kSigmoid ? "sigmoid" : "softmax";
  if (experts.bias) text += ", bias";
  if (experts.groups > 1) {
    text += fmt::format(", {} of {} groups", experts.groups_used, experts.groups);
  }
  if (experts.renormalise) text += ", renormalised";
  if (experts.scale != 1.0) text += fmt::format(", times {}", experts.scale);
  return text;
}

void RunInspect(const InspectFlags& flags) {
  const ModelFile model = flags.model.empty()
                              ? ModelFile::FromMemory(EmbeddedModel(), "the embedded model")
                              : ModelFile::Open(flags.model);
  const ModelConfig& config = model.config();
  std::map<std::string, TypeTotal> types;
  TypeTotal all;
  for (const Tensor& tensor : model.tensors().tensors()) {
    for (TypeTotal* total : {&types[std::string(Info(tensor.dtype).name)], &all}) {
      ++total->tensors;
      total->parameters += tensor.num_elements();
      total->bytes += tensor.bytes.size();
    }
  }
  std::string tokenizer;
  try {
    tokenizer = (model.gguf() != nullptr ? Tokenizer::FromGguf(*model.gguf())
                                         : Tokenizer::FromFolder(model.path()))
                    .Describe();
  } catch (const Error& error) {
    tokenizer = fmt::format("none ({})", error.what());
  }
  const std::vector<std::pair<std::string, uint64_t>> numbers = Numbers(config);
  if (flags.json) {
    nlohmann::ordered_json json = {{"name", config.name},
                                   {"architecture", config.family},
                                   {"format", model.gguf() != nullptr ? "gguf" : "huggingface"},
                                   {"parameters", all.parameters},
                                   {"bytes", all.bytes}};
    for (const auto& [name, value] : numbers) json[name] = value;
    json["rope_theta"] = config.rope_theta;
    json["norm_epsilon"] = config.norm_epsilon;
    json["logit_shift"] = config.logit_shift;
    json["attention"] = AttentionText(config.attention);
    json["qk_norm"] = config.qk_norm;
    json["qkv_bias"] = config.qkv_bias;
    json["tied_head"] = config.tied_head;
    if (config.experts.count > 0) json["router"] = RouterText(config.experts);
    json["tokenizer"] = tokenizer;
    for (const auto& [name, total] : types) {
      json["types"][name] = {
          {"tensors", total.tensors}, {"parameters", total.parameters}, {"bytes", total.bytes}};
    }
    if (flags.tensors) {
      for (const Tensor& tensor : model.tensors().tensors()) {
        json["tensors"].push_back({{"name", tensor.name},
                                   {"type", Info(tensor.dtype).name},
                                   {"shape", tensor.shape},
                                   {"bytes", tensor.bytes.size()}});
      }
    }
    PrintLine(json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return;
  }
  std::string text =
      fmt::format("{}: {} ({}), {:.2f} M parameters, {}\n", config.name, config.family,
                  model.gguf() != nullptr ? fmt::format("GGUF version {}", model.gguf()->version())
                                          : "Hugging Face folder",
                  static_cast<double>(all.parameters) / 1e6, FormatBytes(all.bytes));
  for (const auto& [name, value] : numbers) text += fmt::format("  {:<14}{}\n", name, value);
  text += fmt::format("  {:<14}base {}, epsilon {:g}{}\n", "rope, norm", config.rope_theta,
                      config.norm_epsilon,
                      config.logit_shift ? "; position p is predicted by row p - 1" : "");
  text += fmt::format("  {:<14}{}{}{}{}\n", "attention", AttentionText(config.attention),
                      config.qk_norm ? ", QK norm" : "", config.qkv_bias ? ", QKV bias" : "",
                      config.tied_head ? ", tied head" : "");
  if (config.experts.count > 0) {
    text += fmt::format("  {:<14}{}\n", "router", RouterText(config.experts));
  }
  text += fmt::format("  {:<14}{}\n", "tokenizer", tokenizer);
  std::vector<std::vector<std::string>> table = {{"  type", "tensors", "parameters", "size"}};
  for (const auto& [name, total] : types) {
    table.push_back({"  " + name, fmt::format("{}", total.tensors),
                     fmt::format("{:.2f} M", static_cast<double>(total.parameters) / 1e6),
                     FormatBytes(total.bytes)});
  }
  text += FormatTable(table);
  if (flags.tensors) {
    for (const Tensor& tensor : model.tensors().tensors()) {
      text += fmt::format("  {} {} [{}]\n", tensor.name, Info(tensor.dtype).name,
                          fmt::join(tensor.shape, ", "));
    }
  }
  text.pop_back();
  PrintLine(text);
}

}  // namespace

void AddInspect(CommandLine& line) {
  auto flags = std::make_shared<InspectFlags>();
  Command command = line.Add("inspect", "Show a model's architecture, shapes, types, tokenizer");
  command.Add("model,-m,--model", flags->model,
              "GGUF file or Hugging Face folder (default: the embedded model)");
  command.Add("--tensors", flags->tensors, "List every tensor");
  command.Add("--json", flags->json, "Print one JSON object");
  command.Footer("Example:\n  spa inspect llada-8b-q4_0.gguf --tensors");
  command.Action([flags] { RunInspect(*flags); });
}

}  // namespace spa::cli
