// The tokenizer over HTTP, with vLLM's routes, which lm-eval's API models expect.
#pragma once

#include <string>
#include <string_view>

#include "engine/engine.h"

namespace spa {

// POST /tokenize: "prompt" or "messages" become ids, as the completion routes make them.
std::string TokenizeBody(const Engine& engine, const std::string& model_id, std::string_view body);
// POST /detokenize: "tokens" become text, special tokens included.
std::string DetokenizeBody(const Engine& engine, const std::string& model_id,
                           std::string_view body);
// GET /tokenizer_info
std::string TokenizerInfoBody(const Engine& engine);

}  // namespace spa
