// Any conversation, in any chat format, ends in Error or in a prompt with exactly the structure its
// messages ask for, whatever they say. The first byte chooses the format; messages are separated by
// a zero byte, and the first byte of each is its role.
#include <algorithm>
#include <fstream>
#include <iterator>

#include "tests/fuzz/fuzz_util.h"
#include "text/chat_template.h"

namespace {

using Format = spa::ChatFormat;

// The bytes as tokens, and the control tokens of every format.
spa::Tokenizer MakeTokenizer() {
  std::ifstream file(SPA_TEST_DATA "/byte_tokenizer.json.in", std::ios::binary);
  std::string json{std::istreambuf_iterator<char>(file), {}};
  std::string added;
  int id = 259;
  for (const char* text :
       {"<|startoftext|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>",
        "<|im_end|>", "<role>", "</role>", "<|role_end|>", "<|mdm_mask|>", "<think>", "</think>"}) {
    if (!added.empty()) added += ',';
    added += R"({"special":true,"content":")" + std::string(text) + R"(","id":)" +
             std::to_string(id++) + "}";
  }
  const std::string_view place = "ADDED";
  json.replace(json.find(place), place.size(), added);
  return spa::Tokenizer::FromJson(json, "byte_tokenizer.json");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const spa::Tokenizer tokenizer = MakeTokenizer();
  if (size == 0) return 0;
  constexpr Format kFormats[] = {Format::kLlada, Format::kDream, Format::kLing,
                                 Format::kQwen2, Format::kQwen3, Format::kChatMl};
  const Format format = kFormats[data[0] % std::size(kFormats)];
  std::vector<spa::ChatMessage> messages;
  std::string_view rest = spa::AsText(data + 1, size - 1);
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
    const std::string& first = messages.front().role;
    const bool has_system = first == "system" || first == "developer";
    const bool says_system =
        format == Format::kDream || format == Format::kQwen2 || format == Format::kLing;
    const size_t turns = messages.size() + (says_system && !has_system ? 1 : 0);
    const bool llada = format == Format::kLlada, ling = format == Format::kLing;
    const bool chat_ml = !llada && !ling;
    spa::Require(count("<|mdm_mask|>") == 0);
    spa::Require(count("<|startoftext|>") == (llada ? 1 : 0));
    spa::Require(count("<|eot_id|>") == (llada ? turns : 0));
    spa::Require(count("<|start_header_id|>") == (llada ? turns + 1 : 0));
    spa::Require(count("<|end_header_id|>") == (llada ? turns + 1 : 0));
    spa::Require(count("<role>") == (ling ? turns + 1 : 0));
    spa::Require(count("<|role_end|>") == (ling ? turns : 0));
    spa::Require(count("<|im_start|>") == (chat_ml ? turns + 1 : 0));
    spa::Require(count("<|im_end|>") == (chat_ml ? turns : 0));
  });
  return 0;
}
