#include "server/api_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "server/json_fields.h"

namespace spa {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string RandomId() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:08x}", random(), static_cast<uint32_t>(random()));
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
          {"reused_tokens", stats.reused_tokens},
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

// The text of a token; its bytes if they are not whole characters, as OpenAI writes them.
std::string TokenText(const Tokenizer& tokenizer, TokenId id) {
  std::string bytes(tokenizer.TokenBytes(id));
  const OrderedJson json = bytes;
  try {
    json.dump();
    return bytes;
  } catch (const OrderedJson::type_error&) {
    std::string text = "bytes:";
    for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    return text;
  }
}

std::string TextOf(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += tokenizer.TokenBytes(id);
  return text;
}

}  // namespace

ApiError ErrorOf(const Event& end) {
  switch (end.ending) {
    case Ending::kInvalid:  // only cache options are checked this late
      return ApiError(400, "invalid_request_error", end.text, "cache_options");
    case Ending::kTooLarge:
      return ApiError(413, "invalid_request_error", end.text, {}, "memory_exceeded");
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
                   .count()) {
  if (!request.echo) return;
  for (const GenerationTask& task : request.tasks) prompts_.push_back(task.prompt);
}

OrderedJson ApiAnswer::UsageOf(const std::vector<const Event*>& ends) const {
  size_t prompt = 0, cached = 0, completion = 0;
  for (const Event* end : ends) {
    if (end->choice % n_ == 0) {  // once, however many answers
      prompt += end->stats.prompt_tokens;
      cached += end->stats.reused_tokens;
    }
    completion += end->stats.generated_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

OrderedJson ApiAnswer::Logprobs(const Choice& choice) const {
  if (choice.end.scores.empty()) return nullptr;
  std::vector<TokenId> ids = prompts_[choice.end.choice];
  const std::vector<TokenLikelihood>& scores = choice.end.scores;
  if (scores.size() == ids.size()) ids.push_back(scores.back().best);
  OrderedJson tokens = OrderedJson::array(), own = tokens, top = tokens, offsets = tokens;
  size_t offset = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string text = TokenText(tokenizer_, ids[i]);
    tokens.push_back(text);
    offsets.push_back(offset);
    for (const char c : tokenizer_.TokenBytes(ids[i])) offset += (c & 0xc0) != 0x80 ? 1 : 0;
    if (i == 0) {  // no token before it
      own.push_back(nullptr);
      top.push_back(nullptr);
      continue;
    }
    const TokenLikelihood& score = scores[i - 1];
    const bool generated = i == prompts_[choice.end.choice].size();
    own.push_back(generated ? score.best_log_probability : score.log_probability);
    OrderedJson both = {{text, own.back()}};
    both[TokenText(tokenizer_, score.best)] = score.best_log_probability;
    top.push_back(std::move(both));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(own)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

std::string ApiAnswer::Whole(const std::vector<Choice>& choices) const {
  OrderedJson list = OrderedJson::array();
  OrderedJson stats = OrderedJson::array(), gaps = stats;
  std::vector<const Event*> ends;
  for (const Choice& choice : choices) {
    OrderedJson item = {{"index", choice.end.choice}};
    if (route_ == Route::kChat) {
      item["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    } else {
      std::string text = choice.text;
      if (!choice.end.scores.empty() &&
          choice.end.scores.size() == prompts_[choice.end.choice].size()) {
        text += tokenizer_.TokenBytes(choice.end.scores.back().best);
      }
      if (echoes()) text.insert(0, TextOf(tokenizer_, prompts_[choice.end.choice]));
      item["text"] = std::move(text);
    }
    item["logprobs"] = Logprobs(choice);
    item["finish_reason"] = FinishReason(choice.end);
    list.push_back(std::move(item));
    stats.push_back(StatsJson(choice.end.stats));
    if (!choice.end.gaps.empty()) gaps.push_back(choice.end.gaps);
    ends.push_back(&choice.end);
  }
  OrderedJson dlm = {{"stats", std::move(stats)}};
  if (!gaps.empty()) dlm["gaps"] = std::move(gaps);
  return Dump({{"id", id_},
               {"object", route_ == Route::kChat ? "chat.completion" : "text_completion"},
               {"created", created_},
               {"model", model_id_},
               {"choices", std::move(list)},
               {"usage", UsageOf(ends)},
               {"dlm", std::move(dlm)}});
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

std::string ApiAnswer::First(size_t choice) const {
  return Dump(Chunk(choice, echoes() ? TextOf(tokenizer_, prompts_[choice]) : "", true));
}

std::string ApiAnswer::Text(size_t choice, const std::string& text) const {
  return Dump(Chunk(choice, text, false));
}

std::string ApiAnswer::Canvas(size_t choice, const Frame& frame) const {
  OrderedJson tokens = OrderedJson::array(), settled = tokens, confidence = tokens, rows = tokens;
  OrderedJson given = tokens;
  bool any_given = false;
  for (const Frame::Cell& cell : frame.cells) {
    tokens.push_back(cell.token < 0 ? OrderedJson(nullptr)
                                    : OrderedJson(tokenizer_.Decode({cell.token})));
    settled.push_back(cell.settled ? 1 : 0);
    given.push_back(cell.given ? 1 : 0);
    any_given = any_given || cell.given;
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
  if (any_given) chunk["dlm"]["frame"]["given"] = std::move(given);
  return Dump(chunk);
}

std::string ApiAnswer::Progress(const Event& progress) const {
  OrderedJson chunk = Chunk(progress.choice, "", false);
  chunk["dlm"] = {{"progress", {{"layer", progress.layer}, {"layers", progress.layers}}}};
  return Dump(chunk);
}

std::string ApiAnswer::Last(const Event& end) const {
  OrderedJson chunk = Chunk(end.choice, "", false);
  chunk["choices"][0]["finish_reason"] = FinishReason(end);
  chunk["dlm"] = {{"stats", StatsJson(end.stats)}};
  if (!end.gaps.empty()) chunk["dlm"]["gaps"] = end.gaps;
  return Dump(chunk);
}

std::string ApiAnswer::Usage(const std::vector<Event>& ends) const {
  std::vector<const Event*> list(ends.size());
  std::ranges::transform(ends, list.begin(), [](const Event& end) { return &end; });
  OrderedJson chunk = Chunk(0, "", false);
  chunk["choices"] = OrderedJson::array();
  chunk["usage"] = UsageOf(list);
  return Dump(chunk);
}

}  // namespace spa
