#include "server/api_prompt.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/known_questions.h"
#include "server/api_error.h"

namespace spa {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxMessages = 1024;

std::string ReadContent(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end()) Refuse("messages", "a message must have 'content'");
  if (content->is_null() && message["role"] == "assistant") return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) Refuse("messages", "a message's content must be text");
  std::string text;
  for (const Json& part : *content) {
    if (!part.is_object() || part.value("type", Json()) != "text" ||
        !part.value("text", Json()).is_string()) {
      Refuse("messages", "only parts of type 'text' are supported in a message's content");
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

}  // namespace

std::vector<TokenId> ReadIds(const Json& list, const std::string& name, const Engine& engine) {
  std::vector<TokenId> ids;
  for (const Json& item : list) {
    const bool valid = item.is_number_integer() && item.get<double>() >= 0.0 &&
                       item.get<double>() < static_cast<double>(engine.vocabulary().num_tokens);
    if (!valid) {
      Refuse(name, fmt::format("'{}' has an element that is not a token id of this model", name));
    }
    ids.push_back(item.get<TokenId>());
  }
  return ids;
}

std::vector<TokenId> ReadMessages(JsonFields& fields, const Engine& engine) {
  const Json* list = fields.Find("messages");
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxMessages) {
    Refuse("messages", "'messages' must be a list with at least one message");
  }
  std::vector<ChatMessage> messages;
  for (const Json& item : *list) {
    if (!item.is_object() || !item.value("role", Json()).is_string()) {
      Refuse("messages", "a message must be an object with a role");
    }
    messages.push_back({item["role"].get<std::string>(), ReadContent(item)});
    const std::vector<std::string> roles = {"system", "developer", "user", "assistant"};
    if (std::ranges::find(roles, messages.back().role) == roles.end()) {
      Refuse("messages", fmt::format("a message's role must be one of {}", fmt::join(roles, ", ")));
    }
  }
  // A conversation that ends with an assistant message continues it.
  std::string begun;
  if (messages.back().role == "assistant" && messages.size() > 1) {
    begun = messages.back().content;
    messages.pop_back();
  }
  try {
    CheckKnown(engine, messages);
  } catch (const Error& error) {
    Refuse("messages", error.what());
  }
  std::vector<TokenId> ids = engine.Encode({.messages = messages, .text = {}});
  const std::vector<TokenId> more = engine.tokenizer().Encode(begun);
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

std::vector<std::vector<TokenId>> ReadPrompts(JsonFields& fields, const Engine& engine,
                                              size_t max_prompts) {
  const Json* prompt = fields.Find("prompt");
  if (prompt == nullptr || !(prompt->is_string() || prompt->is_array()) ||
      (prompt->is_array() && prompt->empty())) {
    Refuse("prompt", "'prompt' must be text, token ids or a list of one of them");
  }
  const bool several = prompt->is_array() && !prompt->front().is_number();
  const Json list = several ? *prompt : Json::array({*prompt});
  if (list.size() > max_prompts) {
    Refuse("prompt", fmt::format("'prompt' may hold {} prompts at most", max_prompts));
  }
  std::vector<std::vector<TokenId>> prompts;
  for (const Json& item : list) {
    if (item.is_string()) {
      prompts.push_back(engine.Encode({.messages = {}, .text = item.get<std::string>()}));
    } else if (item.is_array()) {
      prompts.push_back(ReadIds(item, "prompt", engine));
      if (std::ranges::find(prompts.back(), engine.vocabulary().mask_id) != prompts.back().end()) {
        Refuse("prompt", "'prompt' contains the mask token, which is reserved for the canvas");
      }
    } else {
      Refuse("prompt", "'prompt' must be text, token ids or a list of one of them");
    }
  }
  return prompts;
}

std::optional<InfillFields> ReadInfill(JsonFields& fields, const Engine& engine, bool chat) {
  const auto text = fields.Text("template");
  auto suffix = chat ? std::nullopt : fields.Text("suffix");
  if (suffix && suffix->empty()) suffix.reset();
  if (!text && !suffix) return {};
  const std::string name = text ? "template" : "suffix";
  if (text && suffix) Refuse("suffix", "give a 'template' or a 'suffix', not both");
  if (engine.config().attention.kind == AttentionKind::kBlocks) {
    Refuse(name,
           "this model decodes block by block and cannot see what follows a gap: infilling needs a "
           "model with full attention");
  }
  if (fields.Bool("echo").value_or(false)) {
    Refuse("echo", "'echo' cannot be used with gaps: a 'template' is returned whole anyway");
  }
  std::vector<TemplatePart> parts;
  if (text) {
    try {
      parts = ParseTemplate(*text);
    } catch (const Error& error) {
      Refuse(name, error.what());
    }
    if (!chat && fields.Find("prompt") != nullptr) {
      Refuse("prompt", "a 'template' is the whole text: leave 'prompt' out");
    }
  } else {
    const Json* prompt = fields.Find("prompt");
    if (prompt != nullptr && !prompt->is_string()) {
      Refuse("prompt", "'prompt' must be one text if a 'suffix' follows it");
    }
    const std::string before = prompt == nullptr ? "" : prompt->get<std::string>();
    const size_t gap = fields.Count("max_tokens", 1, kMostGap).value_or(kUsualGap);
    if (!before.empty()) parts.push_back({before, 0});
    parts.push_back({{}, gap});
    parts.push_back({*suffix, 0});
  }
  InfillFields read;
  read.whole = text.has_value();
  read.infill =
      EncodeInfill(engine, parts, chat ? ReadMessages(fields, engine) : std::vector<TokenId>());
  const size_t tokens = read.infill.prompt.size() + read.infill.given.canvas.ids.size() +
                        read.infill.given.suffix.size();
  if (tokens > engine.config().context_length) {
    throw ApiError(400, "invalid_request_error",
                   fmt::format("the text has {} tokens with its gaps; the model's context is {}",
                               tokens, engine.config().context_length),
                   name, "context_length_exceeded");
  }
  return read;
}

}  // namespace spa
