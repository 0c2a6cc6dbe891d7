// Any body given to the API ends in tasks the engine would take or in an ApiError with a status.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/api_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static spa::Engine engine(
      {.model = {}, .threads = 1, .kv_type = spa::KvType::kF32, .progress = {}});
  if (size == 0) return 0;
  const auto route = data[0] % 2 == 0 ? spa::Route::kChat : spa::Route::kCompletion;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const spa::ApiRequest request =
        spa::ParseApiRequest(route, body, engine, "mini", {.name = "spa", .options = {}},
                             {.max_prompt_tokens = 0, .max_tokens = 256, .max_prompts = 8});
    if (request.tasks.empty()) std::abort();
    for (const spa::GenerationTask& task : request.tasks) {
      if (task.decode.gen_length < task.max_tokens || task.decode.gen_length > 512) std::abort();
      for (const spa::TokenId id : task.prompt) {
        if (id == engine.vocabulary().mask_id) std::abort();
      }
    }
  } catch (const spa::ApiError& error) {
    if (error.status < 400 || error.status > 499 || error.Body().empty()) std::abort();
  }
  return 0;
}
