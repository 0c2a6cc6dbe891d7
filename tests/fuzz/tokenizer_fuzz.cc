// libFuzzer target: arbitrary bytes as text to encode and decode, and as a tokenizer.json.
// The first byte chooses; the rest is the input. Build with clang and -fsanitize=fuzzer,address.
// Start with tests/data/mini_tokenizer/tokenizer.json behind an 'j' in the corpus; the program
// finds the mini tokenizer through the environment variable SPA_TEST_DATA.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

const spa::Tokenizer& Mini() {
  static const spa::Tokenizer tokenizer = [] {
    const char* data = std::getenv("SPA_TEST_DATA");
    return spa::Tokenizer::FromFolder(std::filesystem::path(data == nullptr ? "tests/data" : data) /
                                      "mini_tokenizer");
  }();
  return tokenizer;
}

void Require(bool condition) {
  if (!condition) std::abort();
}

void CheckText(std::string_view text) {
  const spa::Tokenizer& tokenizer = Mini();
  const std::vector<spa::TokenId> ids = tokenizer.Encode(text);
  for (const spa::TokenId id : ids) Require(!tokenizer.IsControl(id));
  const std::string normal = spa::ToNfc(spa::ToValidUtf8(text));
  Require(tokenizer.Decode(ids) == normal);
  Require(spa::ToNfc(normal) == normal);

  for (const spa::TokenId id : tokenizer.EncodeWithSpecial(text)) Require(id != tokenizer.mask());

  // Two bytes of the input as one id: any order of tokens, also impossible ids.
  std::vector<spa::TokenId> any_ids;
  for (size_t k = 0; k + 1 < text.size(); k += 2) {
    any_ids.push_back(static_cast<uint8_t>(text[k]) | (text[k + 1] & 3) << 8);
  }
  spa::TextStream stream(tokenizer);
  std::string streamed;
  for (const spa::TokenId id : any_ids) streamed += stream.Append({id});
  streamed += stream.Finish();
  Require(streamed == tokenizer.Decode(any_ids));
  Require(spa::IsValidUtf8(streamed));

  spa::EncodeChat(tokenizer, spa::ChatFormat::kLlada, {{"user", std::string(text)}});
}

void CheckJson(std::string_view json) {
  try {
    const spa::Tokenizer tokenizer = spa::Tokenizer::FromJson(json, "fuzz");
    const std::string text = "Hello <|eot_id|> 12345 \u4E00\n\n  x<|mdm_mask|>";
    Require(!tokenizer.Decode(tokenizer.Encode(text)).empty());
    tokenizer.EncodeWithSpecial(text);
    tokenizer.Describe();
    tokenizer.ToGguf(tokenizer.vocab_size() + 1);
  } catch (const spa::Error& error) {
    Require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'j') {
    CheckJson(input);
  } else {
    CheckText(input);
  }
  return 0;
}
