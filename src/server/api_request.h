// Requests for answers: a body becomes tasks for the scheduler, or an ApiError. No HTTP here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/api_error.h"
#include "server/scheduler.h"

namespace spa {

class JsonFields;

struct ApiLimits {
  size_t max_prompt_tokens = 0;  // 0: the model's context alone
  size_t max_tokens = 0;         // of a canvas; 0: the context alone
  size_t max_prompts = 64;       // prompts times n of one request
  bool lenient = false;          // ignore unknown fields and name them in a response header
};

enum class Route { kChat, kCompletion };

struct ApiRequest {
  Route route = Route::kChat;
  std::vector<GenerationTask> tasks;  // one per choice, the n answers to a prompt side by side
  size_t n = 1;
  bool stream = false, include_usage = false;
  bool echo = false;                 // the prompt's text comes before the answer's
  std::vector<std::string> ignored;  // unknown fields
  bool clamped = false;  // more tokens were asked for than fit (see tasks[i].max_tokens)
};

// Throws ApiError.
ApiRequest ParseApiRequest(Route route, std::string_view body, const Engine& engine,
                           const std::string& model_id, const CacheSpec& default_cache,
                           const ApiLimits& limits);

// Refuses a "model" that is not this one.
void CheckModel(JsonFields& fields, const std::string& model_id);

}  // namespace spa
