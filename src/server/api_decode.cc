#include "server/api_decode.h"

#include <algorithm>
#include <random>

#include "base/error.h"
#include "decode/option_table.h"
#include "engine/decode_choices.h"
#include "engine/infill.h"

namespace spa {
namespace {

using Json = nlohmann::json;

// max_tokens and the canvas that holds them: whole blocks after the prompt.
void ReadLengths(JsonFields& fields, const DecodeOptions& standard, size_t room, size_t most,
                 DecodeFields* read, DecodeChoices* choices) {
  constexpr size_t kAnything = size_t{1} << 30;
  const auto first = fields.Count("max_completion_tokens", 1, kAnything);
  const auto second = fields.Count("max_tokens", 1, kAnything);
  const size_t asked = first.value_or(second.value_or(standard.gen_length));
  const auto asked_block = fields.Count("block_length", 1, room);
  const bool blocks = standard.block_length < standard.gen_length;
  size_t block = asked_block.value_or(blocks ? std::min(standard.block_length, room) : 0);
  if (block > 0) room = room / block * block;
  read->max_tokens = std::min({asked, most, room});
  read->clamped = (first || second) && read->max_tokens < asked;
  if (block == 0) block = read->max_tokens;
  if (asked_block && block > read->max_tokens) {
    Refuse("block_length",
           fmt::format("'block_length' is more than the answer's {} tokens", read->max_tokens));
  }
  const size_t gen_length = (read->max_tokens + block - 1) / block * block;
  choices->Set("gen-length", fmt::format("{}", gen_length));
  // Otherwise it follows from the canvas, and the model's own defaults apply.
  if (asked_block) choices->Set("block-length", fmt::format("{}", block));
}

// Every other option has the field of its name.
void ReadOptions(JsonFields& fields, const DecodeOptions& standard, DecodeChoices* choices) {
  const Json* temperature = fields.Find("temperature");
  const bool greedy = temperature == nullptr ? standard.temperature == 0.0 : *temperature == 0;
  for (const DecodeOption& option : DecodeOptionTable()) {
    const std::string& name = option.info.name;
    if (name == "gen-length" || name == "block-length" || name == "seed") continue;
    const bool filter = name == "top-p" || name == "top-k";
    for (std::string field : {name, option.info.alias}) {
      std::ranges::replace(field, '-', '_');
      const Json* value = field.empty() ? nullptr : fields.Find(field);
      if (value == nullptr) continue;
      if (name == "top-k" && *value == -1) continue;  // off, as other servers write it
      const bool wants_number =
          option.info.type == OptionType::kCount || option.info.type == OptionType::kReal;
      // Without a temperature LLaDA takes the likeliest token, whatever is filtered.
      DecodeChoices unused;
      const bool idle = filter && greedy && standard.draw == Draw::kGumbel;
      try {
        if (wants_number != value->is_number()) throw Error("not of that type");
        (idle ? unused : *choices)
            .Set(name, value->is_string() ? value->get<std::string>() : value->dump());
      } catch (const Error&) {
        Refuse(field, fmt::format("'{}' must be {}", field, option.info.Expected()));
      }
    }
  }
}

// A sampled request without a seed gets a random one, returned in its statistics.
void ReadSeed(JsonFields& fields, DecodeOptions* options) {
  const Json* seed = fields.Find("seed");
  if (seed == nullptr) {
    if (options->temperature == 0.0) return;
    thread_local std::mt19937_64 random{std::random_device{}()};
    options->seed = random() >> 11;  // exact in any JSON reader
    return;
  }
  if (!seed->is_number_integer()) Refuse("seed", "'seed' must be a 64-bit integer");
  options->seed = seed->is_number_unsigned() ? seed->get<uint64_t>()
                                             : static_cast<uint64_t>(seed->get<int64_t>());
}

}  // namespace

DecodeFields ReadDecode(JsonFields& fields, const Engine& engine, const ApiLimits& limits,
                        size_t prompt_tokens) {
  const size_t context = engine.config().context_length;
  const size_t most = limits.max_tokens == 0 ? context : std::min(limits.max_tokens, context);
  const DecodeOptions standard = engine.DefaultDecodeOptions();
  DecodeFields read;
  DecodeChoices choices;
  ReadLengths(fields, standard, context - prompt_tokens, most, &read, &choices);
  ReadOptions(fields, standard, &choices);
  try {
    read.options = choices.Resolve(engine);
  } catch (const Error& error) {
    throw ApiError(400, "invalid_request_error", error.what());
  }
  if (read.options.grow_to > 0) {  // max_tokens is where the canvas begins
    const size_t room = std::min(most, context - prompt_tokens);
    if (read.options.grow_to > room) {
      Refuse("grow_to",
             fmt::format("'grow_to' is more than the {} tokens an answer may have", room));
    }
    read.max_tokens = read.options.grow_to;
  }
  ReadSeed(fields, &read.options);
  return read;
}

DecodeOptions ReadInfillDecode(JsonFields& fields, const Engine& engine, const Given& given) {
  DecodeChoices choices;
  if (const auto block = fields.Count("block_length", 1, given.canvas.ids.size())) {
    choices.Set("block-length", std::to_string(*block));
  }
  ReadOptions(fields, engine.DefaultDecodeOptions(), &choices);
  DecodeOptions options;
  try {
    options = ResolveInfill(engine, choices, given);
  } catch (const Error& error) {
    throw ApiError(400, "invalid_request_error", error.what());
  }
  ReadSeed(fields, &options);
  return options;
}

}  // namespace spa
