// Conversations as prompts, in the two formats LLaDA and Dream were trained on. The structural
// tokens are inserted as ids; what people wrote is encoded as plain text, so nobody can type a
// mask or an end-of-turn into a prompt.
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace spa {

struct ChatMessage {
  std::string role;  // system (or developer, the same), user, assistant
  std::string content;
};

enum class ChatFormat { kLlada, kDream };

// Chosen by the special tokens the vocabulary has: <|start_header_id|> or <|im_start|>.
// Throws Error if it has neither (a base model: use plain prompts).
ChatFormat DetectChatFormat(const Tokenizer& tokenizer);

// The whole prompt, ending with the assistant's header. Throws Error for another role or an empty
// conversation.
std::vector<TokenId> EncodeChat(const Tokenizer& tokenizer, ChatFormat format,
                                const std::vector<ChatMessage>& messages);

// The ids that end an assistant's turn: end of text and end of turn. No id twice.
std::vector<TokenId> StopIds(const Tokenizer& tokenizer);

}  // namespace spa
