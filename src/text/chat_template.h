// Conversations as prompts, in the formats the models were trained on. The structural
// tokens are inserted as ids; what people wrote is encoded as plain text, so nobody can type a
// mask or an end-of-turn into a prompt.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace spa {

struct ChatMessage {
  std::string role;  // system (or developer, the same), user, assistant
  std::string content;
};

enum class ChatFormat {
  kLlada,   // headers
  kDream,   // ChatML; a default system message is added if none is given
  kQwen2,   // ChatML; Qwen2.5's own system message
  kQwen3,   // ChatML without one, and an empty <think> block before the answer
  kChatMl,  // ChatML and nothing else (SDAR)
  kLing,    // <role>HUMAN</role>...<|role_end|>: LLaDA-MoE, LLaDA2
};

// Chosen by the special tokens the vocabulary has: <|start_header_id|>, <|im_start|> or
// <|role_end|>. Throws Error if it has none (a base model: use plain prompts).
ChatFormat DetectChatFormat(const Tokenizer& tokenizer);

// The format that a model family names ("llada", "dream", "qwen2", "qwen3", "chatml", "ling";
// "none" for base models, which throws Error) if the vocabulary has its tokens, else the one
// detected.
ChatFormat ChooseChatFormat(const Tokenizer& tokenizer, std::string_view name);

// The whole prompt, ending with the assistant's header. Throws Error for another role or an empty
// conversation.
std::vector<TokenId> EncodeChat(const Tokenizer& tokenizer, ChatFormat format,
                                const std::vector<ChatMessage>& messages);

// The ids that end an assistant's turn: end of text and end of turn. No id twice.
std::vector<TokenId> StopIds(const Tokenizer& tokenizer);

}  // namespace spa
