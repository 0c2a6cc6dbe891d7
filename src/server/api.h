// The OpenAI API as values: request bodies become tasks, outcomes become bodies. Knows no sockets.
// Whatever a body holds, the answer is a request or an ApiError.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/decode_choices.h"
#include "server/mailbox.h"
#include "server/scheduler.h"

namespace spa {

// Refused: an HTTP status and OpenAI's error object.
class ApiError : public std::runtime_error {
 public:
  ApiError(int http_status, std::string type, const std::string& message, std::string param = {},
           std::string code = {})
      : std::runtime_error(message),
        status(http_status),
        type_(std::move(type)),
        param_(std::move(param)),
        code_(std::move(code)) {}
  std::string Body() const;

  const int status;

 private:
  std::string type_, param_, code_;  // param, code: null in the body when empty
};

struct ApiLimits {
  size_t max_prompt_tokens = 0;  // 0: the model's context alone
  size_t max_tokens = 0;         // of a canvas; 0: the context alone
  size_t max_prompts = 64;       // prompts times n of one request
};

enum class Route { kChat, kCompletion };

struct ApiRequest {
  Route route = Route::kChat;
  std::vector<GenerationTask> tasks;  // one per choice, the n answers to a prompt side by side
  size_t n = 1;
  bool stream = false, include_usage = false;
};

// Throws ApiError.
ApiRequest ParseApiRequest(Route route, std::string_view body, const Engine& engine,
                           const std::string& model_id, const CacheSpec& default_cache,
                           const ApiLimits& limits);

// What a generation that did not finish tells the client.
ApiError ErrorOf(const Event& end);

// Makes the bodies of one answer, which share id and time.
class ApiAnswer {
 public:
  ApiAnswer(const ApiRequest& request, std::string model_id, const Tokenizer& tokenizer);

  struct Choice {
    std::string text;
    Event end;
  };
  std::string Whole(const std::vector<Choice>& choices) const;
  // One chunk of a stream, as JSON.
  std::string First(size_t choice) const;  // the role (chat)
  std::string Text(size_t choice, const std::string& text) const;
  std::string Canvas(size_t choice, const Frame& frame) const;
  std::string Last(const Event& end) const;
  std::string Usage(const std::vector<Event>& ends) const;

 private:
  nlohmann::ordered_json Chunk(size_t choice, const std::string& text, bool role) const;

  nlohmann::ordered_json UsageOf(const std::vector<const Event*>& ends) const;

  Route route_;
  size_t n_;
  bool include_usage_;
  std::string model_id_;
  const Tokenizer& tokenizer_;
  std::string id_;
  int64_t created_;
};

}  // namespace spa
