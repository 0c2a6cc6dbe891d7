// Dream's tokenizer folder, whole: the vocabulary (Qwen2.5's, 5 MB as text) is unpacked from
// tests/data/Dream-7B-Instruct/merges.bits (see pack_merges.py there) into a temporary folder.
#pragma once

#include <unistd.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "text/unicode.h"

namespace spa {

// The texts of all tokens in the order of their ids, and the two ids of every merge.
struct UnpackedVocabulary {
  std::vector<std::string> tokens;
  std::vector<std::pair<size_t, size_t>> merges;
};

inline UnpackedVocabulary UnpackMerges(const std::string& packed) {
  UnpackedVocabulary vocabulary;
  // Bytes as the byte-level alphabet writes them: printable ones as themselves, first, then the
  // rest as the characters from U+0100 on.
  std::vector<std::string> others;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const size_t character = printable ? byte : 256 + others.size();
    AppendUtf8(static_cast<char32_t>(character),
               &(printable ? vocabulary.tokens : others).emplace_back());
  }
  vocabulary.tokens.insert(vocabulary.tokens.end(), others.begin(), others.end());

  size_t bit = 0;
  const auto next = [&](size_t width) {
    size_t value = 0;
    for (size_t k = 0; k < width; ++k, ++bit) {
      value |= static_cast<size_t>(static_cast<uint8_t>(packed.at(bit / 8)) >> bit % 8 & 1) << k;
    }
    return value;
  };
  for (;;) {
    const size_t width = std::bit_width(vocabulary.tokens.size() - 1);
    if (bit + 2 * width > 8 * packed.size()) return vocabulary;
    const size_t left = next(width);
    const size_t right = next(width);
    vocabulary.merges.emplace_back(left, right);
    vocabulary.tokens.push_back(vocabulary.tokens.at(left) + vocabulary.tokens.at(right));
  }
}

// Written on first use and removed at exit.
inline const std::filesystem::path& DreamFolder() {
  struct Folder {
    Folder()
        : path(std::filesystem::temp_directory_path() / ("spa-dream-" + std::to_string(getpid()))) {
      const std::filesystem::path source = SPA_TEST_DATA "/Dream-7B-Instruct";
      std::filesystem::copy(source, path);
      std::filesystem::remove(path / "merges.bits");
      std::ifstream file(source / "merges.bits", std::ios::binary);
      const UnpackedVocabulary vocabulary =
          UnpackMerges({std::istreambuf_iterator<char>(file), {}});
      nlohmann::json vocab;
      for (size_t id = 0; id < vocabulary.tokens.size(); ++id) vocab[vocabulary.tokens[id]] = id;
      std::ofstream(path / "vocab.json", std::ios::binary) << vocab.dump(2) << '\n';
      std::ofstream merges(path / "merges.txt", std::ios::binary);
      merges << "#version: 0.2\n";
      for (const auto& [left, right] : vocabulary.merges) {
        merges << vocabulary.tokens[left] << ' ' << vocabulary.tokens[right] << '\n';
      }
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::filesystem::path path;
  };
  static const Folder folder;
  return folder.path;
}

}  // namespace spa
