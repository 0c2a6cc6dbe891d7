#include "server/api.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "decode/option_table.h"

namespace spa {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 256;
constexpr size_t kMaxMessages = 1024;
constexpr size_t kMaxDepth = 32;

std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

[[noreturn]] void Refuse(const std::string& param, const std::string& message) {
  throw ApiError(400, "invalid_request_error", message, param);
}

// How deep lists and objects are nested. Values are copied and destroyed level by level, so depth
// must be bounded before a body is parsed.
size_t Depth(std::string_view json) {
  size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

// The members of a body, read one by one; what nobody asked for is refused at the end, so that a
// typing error cannot silently change a result.
class Fields {
 public:
  explicit Fields(const Json& body) : body_(body) {}

  const Json* Find(const std::string& name) {
    known_.insert(name);
    const auto found = body_.find(name);
    return found == body_.end() || found->is_null() ? nullptr : &*found;
  }
  std::optional<bool> Bool(const std::string& name) {
    const Json* value = Find(name);
    if (value == nullptr) return {};
    if (!value->is_boolean()) Refuse(name, fmt::format("'{}' must be true or false", name));
    return value->get<bool>();
  }
  std::optional<double> Number(const std::string& name, double least, double most) {
    const Json* value = Find(name);
    if (value == nullptr) return {};
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!(number >= least && number <= most)) {
      Refuse(name, fmt::format("'{}' must be a number from {} to {}", name, least, most));
    }
    return number;
  }
  std::optional<size_t> Count(const std::string& name, size_t least, size_t most) {
    const Json* value = Find(name);
    if (value == nullptr) return {};
    // Some clients write whole numbers as 64.0.
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!(number >= static_cast<double>(least) && number <= static_cast<double>(most)) ||
        number != std::floor(number)) {
      Refuse(name, fmt::format("'{}' must be a whole number from {} to {}", name, least, most));
    }
    return static_cast<size_t>(number);
  }
  std::optional<std::string> Text(const std::string& name) {
    const Json* value = Find(name);
    if (value == nullptr) return {};
    if (!value->is_string()) Refuse(name, fmt::format("'{}' must be a string", name));
    return value->get<std::string>();
  }
  std::optional<std::string> OneOf(const std::string& name, const std::vector<std::string>& values) {
    const auto text = Text(name);
    if (text && std::ranges::find(values, *text) == values.end()) {
      Refuse(name, fmt::format("'{}' must be one of {}", name, fmt::join(values, ", ")));
    }
    return text;
  }
  // A field of the API that this server has only in its neutral form.
  void Only(const std::string& name, const std::vector<Json>& neutral) {
    const Json* value = Find(name);
    if (value != nullptr && std::ranges::find(neutral, *value) == neutral.end()) {
      Refuse(name, fmt::format("'{}' is not supported by this server", name));
    }
  }
  void Ignore(const std::string& name) { known_.insert(name); }
  void Finish() const {
    for (const auto& [name, value] : body_.items()) {
      if (!known_.contains(name)) {
        Refuse(name, fmt::format("'{}' is not a field of this request", name));
      }
    }
  }

 private:
  const Json& body_;
  std::set<std::string> known_;
};

std::vector<std::string> ReadStops(Fields& fields) {
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

std::string ReadContent(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end()) Refuse("messages", "a message must have a content");
  if (content->is_null() && message["role"] == "assistant") return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) Refuse("messages", "a message's content must be text");
  std::string text;
  for (const Json& part : *content) {
    if (!part.is_object() || part.value("type", Json()) != "text" ||
        !part.value("text", Json()).is_string()) {
      Refuse("messages", "only parts of the type text are supported in a message's content");
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

std::vector<TokenId> ReadMessages(Fields& fields, const Engine& engine) {
  const Json* list = fields.Find("messages");
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxMessages) {
    Refuse("messages", "'messages' must be a list with at least one message");
  }
  std::vector<ChatMessage> messages;
  for (const Json& item : *list) {
    if (!item.is_object() || !item.value("role", Json()).is_string()) {
      Refuse("messages", "a message must be an object with a role");
    }
    messages.push_back({item["role"].get<std::string>(), ReadContent(item)});
    const std::vector<std::string> roles = {"system", "developer", "user", "assistant"};
    if (std::ranges::find(roles, messages.back().role) == roles.end()) {
      Refuse("messages", fmt::format("a message's role must be one of {}", fmt::join(roles, ", ")));
    }
  }
  // A conversation that ends with the assistant's words goes on from there.
  std::string begun;
  if (messages.back().role == "assistant" && messages.size() > 1) {
    begun = messages.back().content;
    messages.pop_back();
  }
  std::vector<TokenId> ids = engine.Encode({.messages = messages, .text = {}});
  const std::vector<TokenId> more = engine.tokenizer().Encode(begun);
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

std::vector<TokenId> ReadIds(const Json& list, const Engine& engine) {
  std::vector<TokenId> ids;
  for (const Json& item : list) {
    const bool valid = item.is_number_integer() && item.get<double>() >= 0.0 &&
                       item.get<double>() < static_cast<double>(engine.vocabulary().num_tokens);
    if (!valid) Refuse("prompt", "'prompt' holds something that is not a token id of this model");
    ids.push_back(item.get<TokenId>());
    if (ids.back() == engine.vocabulary().mask_id) {
      Refuse("prompt", "'prompt' holds the mask token, which only the canvas may have");
    }
  }
  return ids;
}

// A string, a list of strings, a list of ids or a list of such lists.
std::vector<std::vector<TokenId>> ReadPrompts(Fields& fields, const Engine& engine,
                                              const ApiLimits& limits) {
  const Json* prompt = fields.Find("prompt");
  if (prompt == nullptr || !(prompt->is_string() || prompt->is_array()) ||
      (prompt->is_array() && prompt->empty())) {
    Refuse("prompt", "'prompt' must be text, token ids or a list of one of them");
  }
  const bool several = prompt->is_array() && !prompt->front().is_number();
  const Json list = several ? *prompt : Json::array({*prompt});
  if (list.size() > limits.max_prompts) {
    Refuse("prompt", fmt::format("'prompt' may hold {} prompts at most", limits.max_prompts));
  }
  std::vector<std::vector<TokenId>> prompts;
  for (const Json& item : list) {
    if (item.is_string()) {
      prompts.push_back(engine.Encode({.messages = {}, .text = item.get<std::string>()}));
    } else if (item.is_array()) {
      prompts.push_back(ReadIds(item, engine));
    } else {
      Refuse("prompt", "'prompt' must be text, token ids or a list of one of them");
    }
  }
  return prompts;
}

CacheSpec ReadCache(Fields& fields, const CacheSpec& standard) {
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
std::optional<std::string> ReadSeed(Fields& fields, bool sampled) {
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
DecodeOptions ReadDecode(Fields& fields, const Engine& engine, const ApiLimits& limits,
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

void RefuseUnsupported(Fields& fields) {
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

ApiRequest Read(Route route, Fields& fields, const Engine& engine, const std::string& model_id,
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
    Fields inner(*options);
    request.include_usage = inner.Bool("include_usage").value_or(false);
    inner.Ignore("include_obfuscation");
    inner.Finish();
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
    prompts = ReadPrompts(fields, engine, limits);
  }
  size_t longest = 0;
  for (const std::vector<TokenId>& prompt : prompts) longest = std::max(longest, prompt.size());
  task.decode = ReadDecode(fields, engine, limits, longest, &task.max_tokens);
  fields.Finish();
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

std::string RandomId() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:08x}", random(), static_cast<uint32_t>(random()));
}

OrderedJson OrNull(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

const char* FinishReason(const Event& end) {
  return end.ending == Ending::kStop ? "stop" : "length";
}

OrderedJson StatsJson(const GenerationStats& stats) {
  return {{"cache", stats.cache},
          {"steps", stats.steps},
          {"seed", stats.seed},
          {"seconds", stats.seconds},
          {"queue_seconds", stats.queue_seconds},
          {"first_text_seconds", stats.first_text_seconds},
          {"tokens_per_second",
           stats.seconds > 0.0 ? static_cast<double>(stats.generated_tokens) / stats.seconds : 0.0},
          {"canvas_tokens", stats.canvas_tokens},
          {"rows_computed", stats.rows_computed},
          {"rows_total", stats.rows_total},
          {"cache_bytes", stats.cache_bytes}};
}

// Half-open runs [begin, end, begin, end, ...].
OrderedJson Runs(const RowSet& rows) {
  OrderedJson runs = OrderedJson::array();
  for (size_t i = 0; i < rows.size();) {
    size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    runs.push_back(rows[i]);
    runs.push_back(rows[end - 1] + 1);
    i = end;
  }
  return runs;
}

}  // namespace

std::string ApiError::Body() const {
  return Dump({{"error",
                {{"message", what()},
                 {"type", type_},
                 {"param", OrNull(param_)},
                 {"code", OrNull(code_)}}}});
}

ApiRequest ParseApiRequest(Route route, std::string_view body, const Engine& engine,
                           const std::string& model_id, const CacheSpec& default_cache,
                           const ApiLimits& limits) {
  if (Depth(body) > kMaxDepth) {
    throw ApiError(400, "invalid_request_error",
                   fmt::format("the body is nested more than {} levels deep", kMaxDepth));
  }
  Json json;
  try {
    json = Json::parse(body);
  } catch (const Json::parse_error& error) {
    throw ApiError(400, "invalid_request_error",
                   fmt::format("the body is not JSON (at byte {})", error.byte));
  } catch (const Json::exception&) {
    throw ApiError(400, "invalid_request_error", "the body has a number that is too large");
  }
  if (!json.is_object()) {
    throw ApiError(400, "invalid_request_error", "the body is not a JSON object");
  }
  Fields fields(json);
  try {
    return Read(route, fields, engine, model_id, default_cache, limits);
  } catch (const Error& error) {  // a role, a chat template, a tokenizer that is missing
    throw ApiError(400, "invalid_request_error", error.what());
  }
}

ApiError ErrorOf(const Event& end) {
  switch (end.ending) {
    case Ending::kInvalid:  // only a cache looks at its options this late
      return ApiError(400, "invalid_request_error", end.text, "cache_options");
    case Ending::kTimeout:
      return ApiError(504, "timeout_error", end.text);
    case Ending::kShutdown:
      return ApiError(503, "unavailable_error", end.text);
    default:
      return ApiError(500, "server_error", end.text);
  }
}

ApiAnswer::ApiAnswer(const ApiRequest& request, std::string model_id, const Tokenizer& tokenizer)
    : route_(request.route),
      n_(request.n),
      include_usage_(request.include_usage),
      model_id_(std::move(model_id)),
      tokenizer_(tokenizer),
      id_((route_ == Route::kChat ? "chatcmpl-" : "cmpl-") + RandomId()),
      created_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()) {}

OrderedJson ApiAnswer::UsageOf(const std::vector<const Event*>& ends) const {
  size_t prompt = 0, completion = 0;
  for (const Event* end : ends) {
    if (end->choice % n_ == 0) prompt += end->stats.prompt_tokens;  // once, however many answers
    completion += end->stats.generated_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion}};
}

std::string ApiAnswer::Whole(const std::vector<Choice>& choices) const {
  OrderedJson list = OrderedJson::array();
  OrderedJson stats = OrderedJson::array();
  std::vector<const Event*> ends;
  for (const Choice& choice : choices) {
    OrderedJson item = {{"index", choice.end.choice}};
    if (route_ == Route::kChat) {
      item["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    } else {
      item["text"] = choice.text;
    }
    item["logprobs"] = nullptr;
    item["finish_reason"] = FinishReason(choice.end);
    list.push_back(std::move(item));
    stats.push_back(StatsJson(choice.end.stats));
    ends.push_back(&choice.end);
  }
  return Dump({{"id", id_},
               {"object", route_ == Route::kChat ? "chat.completion" : "text_completion"},
               {"created", created_},
               {"model", model_id_},
               {"choices", std::move(list)},
               {"usage", UsageOf(ends)},
               {"dlm", {{"stats", std::move(stats)}}}});
}

OrderedJson ApiAnswer::Chunk(size_t choice, const std::string& text, bool role) const {
  OrderedJson item = {{"index", choice}};
  if (route_ == Route::kChat) {
    item["delta"] = OrderedJson::object();
    if (role) item["delta"]["role"] = "assistant";
    if (role || !text.empty()) item["delta"]["content"] = text;
  } else {
    item["text"] = text;
  }
  item["logprobs"] = nullptr;
  item["finish_reason"] = nullptr;
  OrderedJson chunk = {
      {"id", id_},
      {"object", route_ == Route::kChat ? "chat.completion.chunk" : "text_completion"},
      {"created", created_},
      {"model", model_id_},
      {"choices", OrderedJson::array({std::move(item)})}};
  if (include_usage_) chunk["usage"] = nullptr;
  return chunk;
}

std::string ApiAnswer::First(size_t choice) const { return Dump(Chunk(choice, "", true)); }

std::string ApiAnswer::Text(size_t choice, const std::string& text) const {
  return Dump(Chunk(choice, text, false));
}

std::string ApiAnswer::Canvas(size_t choice, const Frame& frame) const {
  OrderedJson tokens = OrderedJson::array(), settled = tokens, confidence = tokens, rows = tokens;
  for (const Frame::Cell& cell : frame.cells) {
    tokens.push_back(cell.token < 0 ? OrderedJson(nullptr)
                                    : OrderedJson(tokenizer_.Decode({cell.token})));
    settled.push_back(cell.settled ? 1 : 0);
    confidence.push_back(cell.confidence < 0.0f
                             ? OrderedJson(nullptr)
                             : OrderedJson(std::round(cell.confidence * 1e4) / 1e4));
  }
  for (const RowSet& layer : frame.rows) rows.push_back(Runs(layer));
  OrderedJson chunk = Chunk(choice, "", false);
  chunk["dlm"] = {{"frame",
                   {{"step", frame.step},
                    {"block", {frame.block_begin, frame.block_end}},
                    {"tokens", std::move(tokens)},
                    {"settled", std::move(settled)},
                    {"confidence", std::move(confidence)},
                    {"prompt_tokens", frame.prompt_tokens},
                    {"rows", std::move(rows)}}}};
  return Dump(chunk);
}

std::string ApiAnswer::Last(const Event& end) const {
  OrderedJson chunk = Chunk(end.choice, "", false);
  chunk["choices"][0]["finish_reason"] = FinishReason(end);
  chunk["dlm"] = {{"stats", StatsJson(end.stats)}};
  return Dump(chunk);
}

std::string ApiAnswer::Usage(const std::vector<Event>& ends) const {
  std::vector<const Event*> list;
  for (const Event& end : ends) list.push_back(&end);
  OrderedJson chunk = Chunk(0, "", false);
  chunk["choices"] = OrderedJson::array();
  chunk["usage"] = UsageOf(list);
  return Dump(chunk);
}

}  // namespace spa
