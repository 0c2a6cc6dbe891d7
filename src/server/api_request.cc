#include "server/api_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/random.h"
#include "server/api_decode.h"
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
  CacheSpec spec = standard;
  if (name && *name != standard.name) spec = {.name = *name, .options = {}};
  const auto known = [&](const CacheInfo& info) { return info.name == spec.name; };
  if (name && std::ranges::none_of(Caches(), known)) {
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
    // Requests must not name files on the server.
    if (key == "profile" && spec.options[key] != "auto" && spec.options[key] != "off") {
      Refuse("cache_options", "the cache option 'profile' may be auto or off in a request");
    }
  }
  return spec;
}

// Fields of OpenAI's and other servers' APIs that do not affect the answer.
constexpr const char* kInformative[] = {"user",
                                        "metadata",
                                        "store",
                                        "service_tier",
                                        "safety_identifier",
                                        "priority",
                                        "request_id",
                                        "prompt_cache_key",
                                        "prompt_cache_retention",
                                        "parallel_tool_calls",
                                        "verbosity",
                                        "reasoning_effort"};

// Fields accepted only at the value that changes nothing; clients send them by default.
void RefuseUnsupported(JsonFields& fields) {
  static const std::vector<std::pair<const char*, std::vector<Json>>> neutral = {
      {"frequency_penalty", {0}},
      {"presence_penalty", {0}},
      {"repetition_penalty", {1}},
      {"repeat_penalty", {1}},
      {"length_penalty", {1}},
      {"no_repeat_ngram_size", {0}},
      {"min_p", {0}},
      {"typical_p", {1}},
      {"mirostat", {0}},
      {"min_tokens", {0}},
      {"best_of", {1}},
      {"use_beam_search", {false}},
      {"top_logprobs", {0}},
      {"logit_bias", {Json::object()}},
      {"tools", {Json::array()}},
      {"tool_choice", {"none", "auto"}},
      {"functions", {Json::array()}},
      {"function_call", {"none", "auto"}},
      {"modalities", {Json::array({"text"})}},
      {"response_format", {Json{{"type", "text"}}}},
      {"ignore_eos", {false}},
      {"stop_token_ids", {Json::array()}},
      {"include_stop_str_in_output", {false}},
      {"skip_special_tokens", {true}},
      {"spaces_between_special_tokens", {true}},
      {"add_special_tokens", {true, false}},  // no difference here
      {"add_generation_prompt", {true}},
      {"continue_final_message", {false}},
      {"chat_template_kwargs", {Json::object()}},
  };
  for (const auto& [name, values] : neutral) fields.Only(name, values);
  for (const char* name : kInformative) fields.Ignore(name);
}

// "echo" and "logprobs" of a completion: with both, and nothing or one token to be generated, the
// prompt is scored. That is how lm-eval asks for likelihoods. True if it is to be scored.
bool ReadScore(Route route, JsonFields& fields, ApiRequest* request, GenerationTask* task) {
  if (route == Route::kChat) {
    fields.Only("logprobs", {false, 0});
    fields.Only("echo", {false});
    return false;
  }
  request->echo = fields.Bool("echo").value_or(false);
  const Json* logprobs = fields.Find("logprobs");
  if (logprobs == nullptr || *logprobs == false || *logprobs == 0) return false;
  if (*logprobs != 1 && *logprobs != true) {
    Refuse("logprobs", "'logprobs' may only be 1: the token and the most probable one");
  }
  const Json* length = fields.Find("max_tokens");
  if (!request->echo || length == nullptr || (*length != 0 && *length != 1) || request->stream) {
    Refuse("logprobs",
           "'logprobs' are those of the prompt: they need 'echo', a 'max_tokens' of 0 or 1, and no "
           "'stream'");
  }
  task->score = true;
  task->max_tokens = length->get<size_t>();
  return true;
}

ApiRequest Read(Route route, JsonFields& fields, const Engine& engine, const std::string& model_id,
                const CacheSpec& default_cache, const ApiLimits& limits) {
  ApiRequest request;
  request.route = route;
  CheckModel(fields, model_id);
  request.stream = fields.Bool("stream").value_or(false);
  if (const Json* options = fields.Find("stream_options")) {
    if (!options->is_object()) Refuse("stream_options", "'stream_options' must be an object");
    JsonFields inner(*options);
    request.include_usage = inner.Bool("include_usage").value_or(false);
    inner.Ignore("include_obfuscation");
    if (!limits.lenient) inner.RefuseUnknown();
    for (const std::string& name : inner.Unknown()) request.ignored.push_back(name);
  }
  GenerationTask task;
  task.frames = fields.Bool("stream_diffusion").value_or(false);
  if (task.frames && !request.stream)
    Refuse("stream_diffusion", "'stream_diffusion' needs 'stream'");
  task.stops = ReadStops(fields);
  task.cache = ReadCache(fields, default_cache);
  const size_t n = fields.Count("n", 1, limits.max_prompts).value_or(1);
  request.n = n;
  RefuseUnsupported(fields);
  const bool score = ReadScore(route, fields, &request, &task);
  std::vector<std::vector<TokenId>> prompts;
  const auto gaps = score ? std::nullopt : ReadInfill(fields, engine, route == Route::kChat);
  if (gaps) {
    prompts.push_back(gaps->infill.prompt);
    task.given = gaps->infill.given;
    if (gaps->whole) {
      task.before = gaps->infill.before;
      task.after = gaps->infill.after;
    }
  } else if (route == Route::kChat) {
    prompts.push_back(ReadMessages(fields, engine));
  } else {
    prompts = ReadPrompts(fields, engine, limits.max_prompts);
  }
  size_t longest = 0;
  for (const std::vector<TokenId>& prompt : prompts) longest = std::max(longest, prompt.size());
  const size_t context = engine.config().context_length;
  const size_t most = limits.max_prompt_tokens == 0 ? context - 1 : limits.max_prompt_tokens;
  if (longest > std::min(most, context - 1)) {
    throw ApiError(
        400, "invalid_request_error",
        fmt::format("the prompt has {} tokens; this server takes {}, and {} with the answer",
                    longest, most, context),
        route == Route::kChat ? "messages" : "prompt", "context_length_exceeded");
  }
  if (score) {
    // Scoring does not decode, but these fields are allowed.
    for (const char* name : {"max_completion_tokens", "temperature", "top_p", "top_k", "seed"}) {
      fields.Ignore(name);
    }
  } else if (gaps) {
    task.decode = ReadInfillDecode(fields, engine, task.given);
    task.max_tokens = task.given.canvas.ids.size() + task.decode.grow.value_or(0);
    if (gaps->whole) fields.Only("max_tokens", {});
  } else {
    const DecodeFields decode = ReadDecode(fields, engine, limits, longest);
    task.decode = decode.options;
    task.max_tokens = decode.max_tokens;
    request.clamped = decode.clamped;
  }
  for (const char* name : {"cache", "cache_options"}) {
    if (task.decode.exact && task.cache.name != "none" && fields.Find(name) != nullptr) {
      Refuse(name, fmt::format("exact decoding uses no cache: leave out '{}'", name));
    }
  }
  if (!limits.lenient) fields.RefuseUnknown();
  for (const std::string& name : fields.Unknown()) request.ignored.push_back(name);
  if (prompts.size() * n > limits.max_prompts) {
    Refuse("n", fmt::format("one request may ask for {} answers at most", limits.max_prompts));
  }
  for (const std::vector<TokenId>& prompt : prompts) {
    if (prompt.empty())
      Refuse(route == Route::kChat ? "messages" : "prompt", "the prompt is empty");
    for (size_t i = 0; i < n; ++i) {
      request.tasks.push_back(task);
      request.tasks.back().prompt = prompt;
      // The n answers to a prompt differ from each other and from those of the next seed.
      if (i > 0)
        request.tasks.back().decode.seed = RandomStream(task.decode.seed, i, 0).Bits(0) >> 11;
    }
  }
  return request;
}

}  // namespace

void CheckModel(JsonFields& fields, const std::string& model_id) {
  const auto model = fields.Text("model");
  if (!model || model->empty() || *model == model_id) return;
  throw ApiError(
      404, "invalid_request_error",
      fmt::format("the model '{}' does not exist; this server has '{}'", *model, model_id), "model",
      "model_not_found");
}

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
