// Any conversation ends in Error or in a prompt with exactly the structure its messages ask for,
// whatever they say. Messages are separated by a zero byte: the first byte of each is its role.
#include <algorithm>

#include "tests/fuzz/fuzz_util.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const spa::Tokenizer tokenizer =
      spa::Tokenizer::FromFolder(SPA_TEST_DATA "/mini_tokenizer");
  static const spa::ChatFormat format = spa::DetectChatFormat(tokenizer);
  std::vector<spa::ChatMessage> messages;
  std::string_view rest = spa::AsText(data, size);
  while (!rest.empty() && messages.size() < 8) {
    const std::string_view message = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(message.size() + 1, rest.size()));
    if (message.empty()) continue;
    const char* const roles[] = {"user", "assistant", "system", "developer"};
    const auto role = static_cast<uint8_t>(message[0]);
    // Now and then a role that somebody made up.
    messages.push_back(
        {role < 250 ? roles[role % 4] : std::string(message), std::string(message.substr(1))});
  }
  spa::AcceptOrRefuse([&] {
    const auto ids = spa::EncodeChat(tokenizer, format, messages);
    const auto count = [&](const char* token) {
      return static_cast<size_t>(std::ranges::count(ids, *tokenizer.Find(token)));
    };
    spa::Require(count("<|mdm_mask|>") == 0);
    spa::Require(count("<|startoftext|>") == 1);
    spa::Require(count("<|eot_id|>") == messages.size());
    spa::Require(count("<|start_header_id|>") == messages.size() + 1);
  });
  return 0;
}
