#include "engine/option_reference.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "decode/option_table.h"
#include "policies/registry.h"

namespace spa {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const OptionInfo& info) {
  constexpr const char* kTypes[] = {"count", "number", "choice", "flag", "text"};
  Json json = {{"name", info.name},
               {"type", kTypes[static_cast<size_t>(info.type)]},
               {"default", info.fallback},
               {"help", info.help}};
  if (info.type == OptionType::kCount || info.type == OptionType::kReal) {
    json["min"] = info.least;
    json["max"] = info.most;
  }
  if (info.type == OptionType::kChoice) json["choices"] = info.choices;
  if (!info.alias.empty()) json["alias"] = info.alias;
  return json;
}

std::string Table(const std::vector<OptionInfo>& options, const char* prefix) {
  std::string text = "| option | value | default | |\n|---|---|---|---|\n";
  for (const OptionInfo& info : options) {
    text += fmt::format("| `{}{}` | {} | {} | {} |\n", prefix, info.name, info.Expected(),
                        info.fallback, info.help);
  }
  return text;
}

std::vector<OptionInfo> DecodeInfos() {
  std::vector<OptionInfo> infos;
  for (const DecodeOption& option : DecodeOptionTable()) infos.push_back(option.info);
  return infos;
}

}  // namespace

Json OptionsJson() {
  Json decode = Json::array(), caches = Json::array();
  for (const OptionInfo& info : DecodeInfos()) decode.push_back(ToJson(info));
  for (const CacheInfo& cache : Caches()) {
    Json options = Json::array();
    for (const OptionInfo& info : cache.options) options.push_back(ToJson(info));
    caches.push_back({{"name", cache.name}, {"help", cache.summary}, {"options", options}});
  }
  return {{"decode", decode}, {"caches", caches}};
}

std::string OptionsMarkdown() {
  std::string text =
      "# Options\n\n"
      "Made by `spa options --markdown` from the tables the options are declared in.\n\n"
      "## Decoding\n\n"
      "On the command line as below, in a request as fields with `_` for `-` (`block_length`; the "
      "canvas is `max_tokens` there), in `spa chat` with `/set`. On the command line, one that is "
      "on "
      "or off may stand alone for on.\n\n" +
      Table(DecodeInfos(), "--") +
      "\n# Caches\n\n"
      "`--cache NAME --cache-opt KEY=VALUE`; in a request `\"cache\": \"NAME\", \"cache_options\": "
      "{\"KEY\": VALUE}`; in lists `NAME:KEY=VALUE:KEY=VALUE`. What each cache does is told in "
      "[caches](caches.md).\n";
  for (const CacheInfo& cache : Caches()) {
    text += fmt::format("\n## {}\n\n{}.\n", cache.name, cache.summary);
    if (!cache.options.empty()) text += "\n" + Table(cache.options, "");
  }
  return text;
}

}  // namespace spa
