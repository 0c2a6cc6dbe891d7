#include "server/api_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/random.h"
#include "decode/option_table.h"
#include "engine/decode_choices.h"
#include "server/api_prompt.h"
#include "server/json_fields.h"

namespace spa {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;

std::vector<std::string> ReadStops(JsonFields& fields) {
  const Json* stop = fields.Find("stop");
  std::vector<std::string> stops;
  if (stop == nullptr) return stops;
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  if (list.size() > kMaxStops) {
    Refuse("stop", fmt::format("'stop' may have {} strings at most", kMaxStops));
  }
  for (const Json& item : list) {
    if (!item.is_string()) Refuse("stop", "'stop' must be a string or a list of strings");
    const auto& text = item.get_ref<const std::string&>();
    if (text.size() > kMaxStopBytes) {
      Refuse("stop", fmt::format("a stop string may have {} bytes at most", kMaxStopBytes));
    }
    if (!text.empty()) stops.push_back(text);
  }
  return stops;
}

CacheSpec ReadCache(JsonFields& fields, const CacheSpec& standard) {
  const auto name = fields.Text("cache");
  const Json* options = fields.Find("cache_options");
  // Options of the server's own cache are changed one by one; another cache starts from its own.
  CacheSpec spec = !name || *name == standard.name ? standard : CacheSpec{.name = *name, .options = {}};
  const auto known = [&](const CacheInfo& info) { return info.name == spec.name; };
  if (std::ranges::none_of(Caches(), known)) {
    std::vector<std::string> names;
    for (const CacheInfo& info : Caches()) names.push_back(info.name);
    Refuse("cache", fmt::format("there is no cache '{}': choose from {}", spec.name,
                                fmt::join(names, ", ")));
  }
  if (options == nullptr) return spec;
  if (!options->is_object()) Refuse("cache_options", "'cache_options' must be an object");
  for (const auto& [key, value] : options->items()) {
    if (value.is_structured() || value.is_null()) {
      Refuse("cache_options", fmt::format("the cache option '{}' must be a plain value", key));
    }
    spec.options[key] = value.is_string() ? value.get<std::string>() : value.dump();
    // Files of this machine are the server's business.
    if (key == "profile" && spec.options[key] != "auto" && spec.options[key] != "off") {
      Refuse("cache_options", "the cache option 'profile' may be auto or off in a request");
    }
  }
  return spec;
}

// A sampled request without a seed gets a random one, which its statistics tell.
std::optional<std::string> ReadSeed(JsonFields& fields, bool sampled) {
  const Json* seed = fields.Find("seed");
  if (seed == nullptr) {
    if (!sampled) return {};
    thread_local std::mt19937_64 random{std::random_device{}()};
    return fmt::format("{}", random() >> 11);  // exact in any JSON reader
  }
  if (!seed->is_number_integer()) Refuse("seed", "'seed' must be a whole number of 64 bits");
  if (seed->is_number_unsigned()) return seed->dump();
  return fmt::format("{}", static_cast<uint64_t>(seed->get<int64_t>()));
}

// The fields of DecodeOptions. `max_tokens` is set to the tokens the client wants at most; who does
// not say gets what fits behind a prompt of so many tokens.
DecodeOptions ReadDecode(JsonFields& fields, const Engine& engine, const ApiLimits& limits,
                         size_t prompt_tokens, size_t* max_tokens) {
  const size_t context = engine.config().context_length;
  const size_t most = limits.max_tokens == 0 ? context : std::min(limits.max_tokens, context);
  DecodeChoices choices;
  const DecodeOptions standard = engine.DefaultDecodeOptions();
  const auto first = fields.Count("max_completion_tokens", 1, most);
  const auto second = fields.Count("max_tokens", 1, most);
  const bool blocks = standard.block_length < standard.gen_length;
  size_t room = context - std::min(context, prompt_tokens);
  if (blocks) room = room / standard.block_length * standard.block_length;
  const size_t usual = std::min({standard.gen_length, most, room > 0 ? room : context});
  *max_tokens = first.value_or(second.value_or(usual));
  // The canvas has whole blocks; what is too much is not returned.
  const size_t block = fields.Count("block_length", 1, *max_tokens)
                           .value_or(blocks ? standard.block_length : *max_tokens);
  const size_t gen_length = (*max_tokens + block - 1) / block * block;
  choices.Set("gen-length", fmt::format("{}", gen_length));
  choices.Set("block-length", fmt::format("{}", std::min(block, gen_length)));
  for (const DecodeOption& option : DecodeOptionTable()) {
    const std::string& name = option.info.name;
    if (name == "gen-length" || name == "block-length" || name == "seed") continue;
    for (std::string field : {name, option.info.alias}) {
      std::ranges::replace(field, '-', '_');
      const Json* value = field.empty() ? nullptr : fields.Find(field);
      if (value == nullptr) continue;
      try {
        choices.Set(name, value->is_string() ? value->get<std::string>() : value->dump());
      } catch (const Error&) {
        Refuse(field, fmt::format("'{}' must be {}", field, option.info.Expected()));
      }
    }
  }
  const Json* temperature = fields.Find("temperature");
  const bool sampled =
      temperature != nullptr ? temperature->get<double>() > 0.0 : standard.temperature > 0.0;
  if (const auto seed = ReadSeed(fields, sampled)) choices.Set("seed", *seed);
  try {
    return choices.Resolve(engine);
  } catch (const Error& error) {
    throw ApiError(400, "invalid_request_error", error.what());
  }
}

void RefuseUnsupported(JsonFields& fields) {
  for (const char* name : {"user", "metadata", "store", "service_tier", "safety_identifier",
                           "prompt_cache_key", "parallel_tool_calls"}) {
    fields.Ignore(name);
  }
  fields.Only("frequency_penalty", {0});
  fields.Only("presence_penalty", {0});
  fields.Only("logprobs", {false, 0});
  fields.Only("top_logprobs", {0});
  fields.Only("echo", {false});
  fields.Only("best_of", {1});
  fields.Only("suffix", {""});
  fields.Only("logit_bias", {Json::object()});
  fields.Only("tools", {Json::array()});
  fields.Only("tool_choice", {"none", "auto"});
  fields.Only("functions", {Json::array()});
  fields.Only("modalities", {Json::array({"text"})});
  fields.Only("response_format", {Json{{"type", "text"}}});
}

ApiRequest Read(Route route, JsonFields& fields, const Engine& engine, const std::string& model_id,
                const CacheSpec& default_cache, const ApiLimits& limits) {
  ApiRequest request;
  request.route = route;
  if (const auto model = fields.Text("model"); model && !model->empty() && *model != model_id) {
    throw ApiError(404, "invalid_request_error",
                   fmt::format("the model '{}' does not exist; this server has '{}'", *model,
                               model_id),
                   "model", "model_not_found");
  }
  request.stream = fields.Bool("stream").value_or(false);
  if (const Json* options = fields.Find("stream_options")) {
    if (!options->is_object()) Refuse("stream_options", "'stream_options' must be an object");
    if (!request.stream) Refuse("stream_options", "'stream_options' needs 'stream'");
    JsonFields inner(*options);
    request.include_usage = inner.Bool("include_usage").value_or(false);
    inner.Ignore("include_obfuscation");
    inner.RefuseUnknown();
  }
  GenerationTask task;
  task.frames = fields.Bool("stream_diffusion").value_or(false);
  if (task.frames && !request.stream) Refuse("stream_diffusion", "'stream_diffusion' needs 'stream'");
  task.stops = ReadStops(fields);
  task.cache = ReadCache(fields, default_cache);
  const size_t n = fields.Count("n", 1, limits.max_prompts).value_or(1);
  request.n = n;
  RefuseUnsupported(fields);
  std::vector<std::vector<TokenId>> prompts;
  if (route == Route::kChat) {
    prompts.push_back(ReadMessages(fields, engine));
  } else {
    prompts = ReadPrompts(fields, engine, limits.max_prompts);
  }
  size_t longest = 0;
  for (const std::vector<TokenId>& prompt : prompts) longest = std::max(longest, prompt.size());
  task.decode = ReadDecode(fields, engine, limits, longest, &task.max_tokens);
  fields.RefuseUnknown();
  if (prompts.size() * n > limits.max_prompts) {
    Refuse("n", fmt::format("one request may ask for {} answers at most", limits.max_prompts));
  }
  const size_t context = engine.config().context_length;
  for (const std::vector<TokenId>& prompt : prompts) {
    if (prompt.empty()) Refuse(route == Route::kChat ? "messages" : "prompt", "the prompt is empty");
    const bool too_long = limits.max_prompt_tokens != 0 && prompt.size() > limits.max_prompt_tokens;
    if (too_long || prompt.size() + task.decode.gen_length > context) {
      throw ApiError(400, "invalid_request_error",
                     fmt::format("the prompt has {} tokens and the canvas {}; this server takes {} "
                                 "tokens of prompt and {} in all",
                                 prompt.size(), task.decode.gen_length,
                                 limits.max_prompt_tokens == 0 ? context : limits.max_prompt_tokens,
                                 context),
                     route == Route::kChat ? "messages" : "prompt", "context_length_exceeded");
    }
    for (size_t i = 0; i < n; ++i) {
      request.tasks.push_back(task);
      request.tasks.back().prompt = prompt;
      // Several answers to one prompt differ, and from those of the next seed.
      if (i > 0) request.tasks.back().decode.seed = RandomStream(task.decode.seed, i, 0).Bits(0) >> 11;
    }
  }
  return request;
}

}  // namespace

ApiRequest ParseApiRequest(Route route, std::string_view body, const Engine& engine,
                           const std::string& model_id, const CacheSpec& default_cache,
                           const ApiLimits& limits) {
  const Json json = ParseObject(body);
  JsonFields fields(json);
  try {
    return Read(route, fields, engine, model_id, default_cache, limits);
  } catch (const Error& error) {  // a role, a chat template, a tokenizer that is missing
    throw ApiError(400, "invalid_request_error", error.what());
  }
}

}  // namespace spa
