// Any bytes as text to encode and decode, as a tokenizer.json, and as vocab.json or merges.txt of a
// folder. The first byte chooses; the rest is the input.
#include <vector>

#include "tests/fuzz/fuzz_util.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

using spa::Require;

const spa::Tokenizer& Mini() {
  static const spa::Tokenizer tokenizer =
      spa::Tokenizer::FromFolder(SPA_TEST_DATA "/mini_tokenizer");
  return tokenizer;
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
}

void Use(const spa::Tokenizer& tokenizer) {
  const std::string text = "Hello <|eot_id|> 12345 \u4E00\n\n  x<|mdm_mask|>";
  Require(!tokenizer.Decode(tokenizer.Encode(text)).empty());
  tokenizer.EncodeWithSpecial(text);
  tokenizer.Describe();
}

void CheckJson(std::string_view json) {
  spa::AcceptOrRefuse([&] {
    const spa::Tokenizer tokenizer = spa::Tokenizer::FromJson(json, "fuzz");
    Use(tokenizer);
    tokenizer.ToGguf(tokenizer.vocab_size() + 1);
  });
}

// The 256 bytes in the byte-level alphabet: the least vocabulary that is one. Without braces.
std::string ByteVocabulary() {
  std::string json;
  char32_t other = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    json += byte == 0 ? "\"" : ",\"";
    if (byte == '"' || byte == '\\') json += '\\';
    spa::AppendUtf8(printable ? byte : other++, &json);
    json += "\":" + std::to_string(static_cast<uint32_t>(byte));
  }
  return json;
}

// A tokenizer.json whose vocabulary begins with the bytes: short inputs get past them.
void CheckJsonWithBytes(std::string_view json) {
  static const std::string bytes = ByteVocabulary();
  constexpr std::string_view kBegin = R"("vocab":{)";
  const size_t begin = json.find(kBegin);
  if (begin == std::string_view::npos) return;
  const size_t end = begin + kBegin.size();
  const bool more = end < json.size() && json[end] != '}';
  CheckJson(std::string(json.substr(0, end)) + bytes + (more ? "," : "") +
            std::string(json.substr(end)));
}

// A file of the folder, and what it holds while another is tried.
struct FolderFile {
  FolderFile(const char* name, std::string small) : file(name), good(std::move(small)) {
    file.Write(good);
  }
  spa::ScratchFile file;
  const std::string good;
};

// One file of a folder whose others are small and good.
void CheckFolder(uint8_t which, std::string_view bytes) {
  static FolderFile config("tokenizer_config.json", R"({"tokenizer_class":"Qwen2Tokenizer"})");
  static FolderFile vocabulary("vocab.json", "{" + ByteVocabulary() + "}");
  static FolderFile merges("merges.txt", "#version: 0.2\n");
  FolderFile& tried = which == 'c' ? config : which == 'v' ? vocabulary : merges;
  tried.file.Write(bytes);
  spa::AcceptOrRefuse([] { Use(spa::Tokenizer::FromFolder(spa::ScratchFolder())); });
  tried.file.Write(tried.good);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input = spa::AsText(data + 1, size - 1);
  switch (data[0]) {
    case 'j':
      CheckJson(input);
      break;
    case 'b':
      CheckJsonWithBytes(input);
      break;
    case 'v':
    case 'm':
    case 'c':
      CheckFolder(data[0], input);
      break;
    default:
      CheckText(input);
  }
  return 0;
}
