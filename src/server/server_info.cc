#include "server/server_info.h"

#include <map>
#include <nlohmann/json.hpp>

#include "decode/option_table.h"

namespace spa {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson ModelJson(const Engine& engine, const ServerOptions& options) {
  OrderedJson model = {{"id", options.model_id},
                       {"object", "model"},
                       {"created", 0},
                       {"owned_by", "spa.cpp"},
                       {"max_model_len", engine.config().context_length}};
  if (engine.config().single_turn) model["single_turn"] = true;
  if (!engine.config().knows.empty()) model["knows"] = engine.config().knows;
  return model;
}

}  // namespace

std::string PropsBody(const Engine& engine, const ServerOptions& options) {
  OrderedJson caches = OrderedJson::array();
  for (const CacheInfo& info : Caches()) {
    caches.push_back({{"name", info.name}, {"summary", info.summary}});
  }
  const DecodeOptions standard = engine.DefaultDecodeOptions();
  std::map<std::string, std::string> described;
  for (const auto& [name, value] : DescribeDecodeOptions(standard)) described[name] = value;
  std::vector<OptionInfo> infos;
  for (const DecodeOption& option : DecodeOptionTable()) infos.push_back(option.info);
  const ModelConfig& config = engine.config();
  const size_t most =
      options.limits.max_tokens == 0 ? config.context_length : options.limits.max_tokens;
  const OrderedJson body = {{"version", options.version},
                            {"model",
                             {{"id", options.model_id},
                              {"family", config.family},
                              {"layers", config.num_layers},
                              {"context", config.context_length},
                              {"infills", config.attention.kind == AttentionKind::kFull}}},
                            {"defaults",
                             {{"max_tokens", std::min<size_t>(standard.gen_length, most)},
                              {"block_length", standard.block_length},
                              {"remasking", described.at("remasking")},
                              {"temperature", standard.temperature},
                              {"cache", options.cache.name}}},
                            {"caches", caches},
                            {"remasking", FindOption(infos, "remasking")->choices},
                            {"limits",
                             {{"max_tokens", most},
                              {"parallel", options.scheduler.parallel},
                              {"queue", options.scheduler.queue},
                              {"memory", options.scheduler.memory}}},
                            {"examples", options.examples}};
  return body.dump();
}

std::string ModelListBody(const Engine& engine, const ServerOptions& options) {
  return OrderedJson{{"object", "list"}, {"data", OrderedJson::array({ModelJson(engine, options)})}}
      .dump();
}

std::string ModelBody(const Engine& engine, const ServerOptions& options) {
  return ModelJson(engine, options).dump();
}

}  // namespace spa
