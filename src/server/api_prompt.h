// What a request asks: messages, text or token ids, as the ids the engine takes.
#pragma once

#include <vector>

#include "engine/engine.h"
#include "server/json_fields.h"

namespace spa {

// All throw ApiError, or Error where the model's tokenizer or chat template refuses.
// A list of token ids, the value of the field `name`.
std::vector<TokenId> ReadIds(const nlohmann::json& list, const std::string& name,
                             const Engine& engine);
// "messages": a conversation in the model's chat format.
std::vector<TokenId> ReadMessages(JsonFields& fields, const Engine& engine);
// "prompt": a string, a list of strings, a list of ids or a list of such lists.
std::vector<std::vector<TokenId>> ReadPrompts(JsonFields& fields, const Engine& engine,
                                              size_t max_prompts);

}  // namespace spa
