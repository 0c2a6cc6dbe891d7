// Drives the tokenizer from a script (scripts/check_tokenizer.py).
//
//   tokenize SOURCE encode    stdin: texts; stdout: their ids, special tokens staying text
//   tokenize SOURCE special   the same with added tokens recognised
//   tokenize SOURCE decode    stdin: ids; stdout: texts
//   tokenize SOURCE gguf OUT  writes the tokenizer to a GGUF file without tensors
//   tokenize - classes        stdout: one byte per code point, the bits of text/unicode.h
//
// SOURCE is a folder, a tokenizer.json or a GGUF file. A record, in or out, is a little-endian
// 32-bit count followed by that many bytes (texts) or 32-bit ids. The time it takes goes to stderr.
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "file/gguf.h"
#include "file/gguf_writer.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

// Processor time: other programs do not change it.
double SecondsSince(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

std::string ReadAll(std::istream& in) { return {std::istreambuf_iterator<char>(in), {}}; }

spa::Tokenizer Load(const std::filesystem::path& source) {
  if (source.extension() == ".gguf") return spa::Tokenizer::FromGguf(spa::GgufFile(source));
  if (source.extension() == ".json") {
    std::ifstream file(source, std::ios::binary);
    return spa::Tokenizer::FromJson(ReadAll(file), source.string());
  }
  return spa::Tokenizer::FromFolder(source);
}

template <typename Items>
void WriteRecord(const Items& items) {
  const auto count = static_cast<uint32_t>(items.size());
  std::fwrite(&count, sizeof(count), 1, stdout);
  std::fwrite(items.data(), sizeof(items[0]), items.size(), stdout);
}

void WriteGguf(const spa::Tokenizer& tokenizer, const std::filesystem::path& path) {
  const spa::Tokenizer::GgufForm form = tokenizer.ToGguf(tokenizer.vocab_size());
  spa::GgufWriter writer(path);
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddString("tokenizer.ggml.pre", form.pre);
  writer.AddStrings("tokenizer.ggml.tokens", form.tokens);
  writer.AddInt32s("tokenizer.ggml.token_type", form.types);
  writer.AddStrings("tokenizer.ggml.merges", form.merges);
  if (tokenizer.mask()) writer.AddUint32("tokenizer.ggml.mask_token_id", *tokenizer.mask());
  writer.BeginData();
  writer.Finish();
}

int Run(int argc, char** argv) {
  const std::string_view mode = argc >= 3 ? argv[2] : "";
  if (mode == "classes") {
    std::vector<uint8_t> bits;
    for (char32_t c = 0; c < 0x110000; ++c) bits.push_back(spa::CharTable::Get().Bits(c));
    std::fwrite(bits.data(), 1, bits.size(), stdout);
    return 0;
  }
  if (mode != "encode" && mode != "special" && mode != "decode" && !(mode == "gguf" && argc == 4)) {
    std::fprintf(stderr, "usage: tokenize SOURCE encode|special|decode|classes|gguf OUT\n");
    return 2;
  }
  const std::clock_t load_start = std::clock();
  const spa::Tokenizer tokenizer = Load(argv[1]);
  const double load_seconds = SecondsSince(load_start);
  if (mode == "gguf") {
    WriteGguf(tokenizer, argv[3]);
    return 0;
  }

  std::ios::sync_with_stdio(false);
  const std::string input = ReadAll(std::cin);
  const size_t item_bytes = mode == "decode" ? sizeof(spa::TokenId) : 1;
  size_t num_bytes = 0;
  double seconds = 0;
  for (size_t pos = 0; pos + sizeof(uint32_t) <= input.size();) {
    uint32_t count;
    std::memcpy(&count, input.data() + pos, sizeof(count));
    pos += sizeof(count);
    const std::string_view record = std::string_view(input).substr(pos, count * item_bytes);
    pos += record.size();
    num_bytes += record.size();
    const std::clock_t start = std::clock();
    if (mode == "decode") {
      std::vector<spa::TokenId> ids(record.size() / item_bytes);
      std::memcpy(ids.data(), record.data(), ids.size() * item_bytes);
      const std::string text = tokenizer.Decode(ids);
      seconds += SecondsSince(start);
      WriteRecord(text);
    } else {
      const std::vector<spa::TokenId> ids =
          mode == "special" ? tokenizer.EncodeWithSpecial(record) : tokenizer.Encode(record);
      seconds += SecondsSince(start);
      WriteRecord(ids);
    }
  }
  std::fprintf(stderr, "loaded in %.0f ms; %.1f MB in %.2f s: %.1f MB/s\n", load_seconds * 1e3,
               num_bytes / 1e6, seconds, num_bytes / 1e6 / seconds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const spa::Error& error) {
    std::fprintf(stderr, "tokenize: %s\n", error.what());
    return 1;
  }
}
