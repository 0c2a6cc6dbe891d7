#include "text/chat_template.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "file/quoted.h"
#include "text/unicode.h"

namespace spa {

namespace {

std::optional<TokenId> FindControl(const Tokenizer& tokenizer, std::string_view text) {
  const auto id = tokenizer.Find(text);
  return id && tokenizer.IsControl(*id) ? id : std::nullopt;
}

TokenId ControlId(const Tokenizer& tokenizer, std::string_view text) {
  const auto id = FindControl(tokenizer, text);
  if (!id) throw Error("the tokenizer lacks {}, which its chat format needs", text);
  return *id;
}

// What Python's str.strip removes, for that is what the models' templates call: white space, and
// the separators U+001C..U+001F.
bool IsTrimmed(char32_t c) {
  return (CharTable::Get().Bits(c) & kSpace) != 0 || (c >= 0x1C && c <= 0x1F);
}

std::string Trimmed(const std::string& content) {
  const std::string text = ToValidUtf8(content);
  size_t begin = text.size();  // of the first character to keep
  size_t end = text.size();    // after the last one
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = DecodeUtf8(text, pos);
    if (!IsTrimmed(c.code_point)) {
      begin = std::min(begin, pos);
      end = pos + c.length;
    }
    pos += c.length;
  }
  return text.substr(begin, end - begin);
}

std::string RoleName(const std::string& role) {
  if (role == "developer") return "system";
  if (role == "system" || role == "user" || role == "assistant") return role;
  throw Error("a message has the role {}; expected system, user or assistant", Quoted(role));
}

class Prompt {
 public:
  explicit Prompt(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void AddControl(std::string_view text) { ids_.push_back(ControlId(tokenizer_, text)); }
  // Between two control tokens all text must come in one call, as the references encode it.
  void AddText(const std::string& text) {
    const std::vector<TokenId> ids = tokenizer_.Encode(text);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }
  // Text of the format itself, in which added tokens count.
  void AddOwnText(const std::string& text) {
    const std::vector<TokenId> ids = tokenizer_.EncodeWithSpecial(text);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }
  std::vector<TokenId> Take() { return std::move(ids_); }

 private:
  const Tokenizer& tokenizer_;
  std::vector<TokenId> ids_;
};

std::vector<TokenId> EncodeLlada(const Tokenizer& tokenizer,
                                 const std::vector<ChatMessage>& messages) {
  Prompt prompt(tokenizer);
  const auto add_header = [&](const std::string& role) {
    prompt.AddControl("<|start_header_id|>");
    prompt.AddText(role);
    prompt.AddControl("<|end_header_id|>");
  };
  prompt.AddControl("<|startoftext|>");  // exactly once, whatever add_bos_token says
  for (const ChatMessage& message : messages) {
    add_header(RoleName(message.role));
    prompt.AddText("\n\n" + Trimmed(message.content));
    prompt.AddControl("<|eot_id|>");
  }
  add_header("assistant");
  prompt.AddText("\n\n");
  return prompt.Take();
}

// default_system: said when no system message is given; empty for none. answer_start: put at the
// beginning of the answer.
std::vector<TokenId> EncodeChatMl(const Tokenizer& tokenizer,
                                  const std::vector<ChatMessage>& messages,
                                  const std::string& default_system,
                                  const std::string& answer_start) {
  Prompt prompt(tokenizer);
  const auto add_turn = [&](const std::string& role, const std::string& content) {
    prompt.AddControl("<|im_start|>");
    prompt.AddText(role + "\n" + content);
    prompt.AddControl("<|im_end|>");
    prompt.AddText("\n");
  };
  if (RoleName(messages.front().role) != "system" && !default_system.empty()) {
    add_turn("system", default_system);
  }
  for (const ChatMessage& message : messages) add_turn(RoleName(message.role), message.content);
  prompt.AddControl("<|im_start|>");
  prompt.AddOwnText("assistant\n" + answer_start);
  return prompt.Take();
}

std::vector<TokenId> EncodeLing(const Tokenizer& tokenizer,
                                const std::vector<ChatMessage>& messages) {
  Prompt prompt(tokenizer);
  const auto add_role = [&](const std::string& role) {
    prompt.AddControl("<role>");
    prompt.AddText(role);
    prompt.AddControl("</role>");
  };
  const auto add_turn = [&](const std::string& role, const std::string& content) {
    add_role(role);
    prompt.AddText(content);
    prompt.AddControl("<|role_end|>");
  };
  const bool has_system = RoleName(messages.front().role) == "system";
  add_turn("SYSTEM", (has_system ? messages.front().content + "\n" : std::string()) +
                         "detailed thinking off");
  for (size_t i = has_system ? 1 : 0; i < messages.size(); ++i) {
    const std::string role = RoleName(messages[i].role);
    add_turn(role == "user"        ? "HUMAN"
             : role == "assistant" ? "ASSISTANT"
                                   : "SYSTEM",
             messages[i].content);
  }
  add_role("ASSISTANT");
  return prompt.Take();
}

struct NamedFormat {
  std::string_view name;
  ChatFormat format;
  std::string_view token;  // of the vocabularies that have it
};
constexpr NamedFormat kFormats[] = {
    {"llada", ChatFormat::kLlada, "<|start_header_id|>"},
    {"dream", ChatFormat::kDream, "<|im_start|>"},
    {"ling", ChatFormat::kLing, "<|role_end|>"},
    {"qwen2", ChatFormat::kQwen2, "<|im_start|>"},
    {"qwen3", ChatFormat::kQwen3, "<|im_start|>"},
    {"chatml", ChatFormat::kChatMl, "<|im_start|>"},
};

[[noreturn]] void ThrowNoFormat() {
  throw Error("this model has no chat format; give it plain prompts");
}

}  // namespace

ChatFormat DetectChatFormat(const Tokenizer& tokenizer) {
  for (const NamedFormat& known : kFormats) {
    if (FindControl(tokenizer, known.token)) return known.format;
  }
  ThrowNoFormat();
}

ChatFormat ChooseChatFormat(const Tokenizer& tokenizer, std::string_view name) {
  if (name == "none") ThrowNoFormat();
  for (const NamedFormat& known : kFormats) {
    if (known.name == name && FindControl(tokenizer, known.token)) return known.format;
  }
  return DetectChatFormat(tokenizer);
}

std::vector<TokenId> EncodeChat(const Tokenizer& tokenizer, ChatFormat format,
                                const std::vector<ChatMessage>& messages) {
  if (messages.empty()) throw Error("a conversation needs at least one message");
  switch (format) {
    case ChatFormat::kLlada:
      return EncodeLlada(tokenizer, messages);
    case ChatFormat::kDream:
      return EncodeChatMl(tokenizer, messages, "You are a helpful assistant.", "");
    case ChatFormat::kQwen2:
      return EncodeChatMl(tokenizer, messages,
                          "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
                          "");
    case ChatFormat::kQwen3:
      return EncodeChatMl(tokenizer, messages, "", "<think>\n\n</think>\n\n");
    case ChatFormat::kChatMl:
      return EncodeChatMl(tokenizer, messages, "", "");
    case ChatFormat::kLing:
      return EncodeLing(tokenizer, messages);
  }
  throw Error("unknown chat format");
}

std::vector<TokenId> StopIds(const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for (const auto id :
       {tokenizer.eos(), tokenizer.end_of_turn(), FindControl(tokenizer, "<|eot_id|>"),
        FindControl(tokenizer, "<|im_end|>"), FindControl(tokenizer, "<|role_end|>"),
        FindControl(tokenizer, "<|endoftext|>")}) {
    if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  }
  return ids;
}

}  // namespace spa
