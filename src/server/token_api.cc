#include "server/token_api.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "server/api_error.h"
#include "server/api_prompt.h"
#include "server/api_request.h"
#include "server/json_fields.h"

namespace spa {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

std::string TokenText(const Engine& engine, TokenId id) {
  return std::string(engine.tokenizer().TokenBytes(id));
}

OrderedJson TextOrNull(const Engine& engine, std::optional<TokenId> id) {
  return id && *id >= 0 ? OrderedJson(TokenText(engine, *id)) : OrderedJson(nullptr);
}

}  // namespace

std::string TokenizeBody(const Engine& engine, const std::string& model_id, std::string_view body) {
  const Json json = ParseObject(body);
  JsonFields fields(json);
  CheckModel(fields, model_id);
  const bool with_texts = fields.Bool("return_token_strs").value_or(false);
  fields.Bool("add_special_tokens");  // no tokenizer here adds any
  fields.Only("add_generation_prompt", {true});
  std::vector<TokenId> ids;
  try {
    if (fields.Find("messages") != nullptr) {
      ids = ReadMessages(fields, engine);
    } else if (const auto text = fields.Text("prompt")) {
      ids = engine.Encode({.messages = {}, .text = *text});
    } else {
      Refuse("prompt", "'prompt' must be text");
    }
  } catch (const Error& error) {
    Refuse("", error.what());
  }
  fields.RefuseUnknown();
  OrderedJson texts = nullptr;
  if (with_texts) {
    texts = OrderedJson::array();
    for (const TokenId id : ids) texts.push_back(TokenText(engine, id));
  }
  return Dump({{"count", ids.size()},
               {"max_model_len", engine.config().context_length},
               {"tokens", ids},
               {"token_strs", std::move(texts)}});
}

std::string DetokenizeBody(const Engine& engine, const std::string& model_id,
                           std::string_view body) {
  const Json json = ParseObject(body);
  JsonFields fields(json);
  CheckModel(fields, model_id);
  const Json* tokens = fields.Find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    Refuse("tokens", "'tokens' must be a list of token ids");
  }
  fields.RefuseUnknown();
  std::string text;
  for (const TokenId id : ReadIds(*tokens, "tokens", engine)) text += TokenText(engine, id);
  return Dump({{"prompt", text}});
}

std::string TokenizerInfoBody(const Engine& engine) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const std::string& chat = tokenizer.chat_template();
  return Dump({{"tokenizer_class", "byte-level BPE"},
               {"vocab_size", tokenizer.vocab_size()},
               {"model_max_length", engine.config().context_length},
               {"bos_token", TextOrNull(engine, tokenizer.bos())},
               {"eos_token", TextOrNull(engine, tokenizer.eos())},
               {"pad_token", TextOrNull(engine, tokenizer.pad())},
               {"mask_token", TextOrNull(engine, engine.vocabulary().mask_id)},
               {"chat_template", chat.empty() ? OrderedJson(nullptr) : OrderedJson(chat)}});
}

}  // namespace spa
