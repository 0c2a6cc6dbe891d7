// The fields that say how an answer is decoded.
#pragma once

#include "engine/engine.h"
#include "server/api_request.h"
#include "server/json_fields.h"

namespace spa {

struct DecodeFields {
  DecodeOptions options;
  size_t max_tokens = 0;  // of the answer; the canvas has whole blocks and may be longer
  bool clamped = false;   // max_tokens is less than was asked for
};

// For prompts of at most this many tokens, which must leave room for an answer. Throws ApiError.
DecodeFields ReadDecode(JsonFields& fields, const Engine& engine, const ApiLimits& limits,
                        size_t prompt_tokens);

// The same for a text with gaps, whose lengths are given.
DecodeOptions ReadInfillDecode(JsonFields& fields, const Engine& engine, const Given& given);

}  // namespace spa
