// The prompt of a request (messages, text or token ids) as token ids.
#pragma once

#include <vector>

#include "engine/engine.h"
#include "engine/infill.h"
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

// A text with gaps: "template", of a completion or of a chat's answer; or the "prompt" of a
// completion with its "suffix" and "max_tokens" between them. Nothing if neither is there.
struct InfillFields {
  Infill infill;
  bool whole = false;  // the answer is the whole text, not only what fills the gap
};
std::optional<InfillFields> ReadInfill(JsonFields& fields, const Engine& engine, bool chat);

}  // namespace spa
