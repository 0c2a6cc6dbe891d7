// A tokenizer as its files spell it: GGUF metadata (tokenizer_gguf.cc), tokenizer.json, or
// vocab.json with merges.txt (tokenizer_hf.cc). The readers bring all into one form and refuse what
// this engine does not implement. Internal to the tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "file/gguf.h"

namespace spa {

// Texts are views: into `storage`, `mapped`, or the GgufFile it
// came from, which must outlive this.
struct TokenizerParts {
  struct Token {
    int64_t id = 0;
    std::string_view text;
  };
  struct AddedToken {
    int64_t id = 0;
    std::string content;
    bool control = false;
  };

  std::vector<Token> vocab;       // texts in the byte-level alphabet
  std::vector<AddedToken> added;  // may repeat a token that two files list; the first entry counts
  std::vector<std::pair<std::string_view, std::string_view>> merges;  // best first
  size_t max_digits = 1;
  bool nfc = false;
  bool ignore_merges = false;
  std::optional<int64_t> bos, eos, pad, mask, end_of_turn;
  std::string chat_template;

  std::string storage;
  std::unique_ptr<MappedFile> mapped;
};

TokenizerParts PartsFromGguf(const GgufFile& file);
TokenizerParts PartsFromFolder(const std::filesystem::path& folder);
// A tokenizer.json alone; `name` appears in errors.
TokenizerParts PartsFromJson(std::string_view tokenizer_json, const std::string& name);

// The `tokenizer.ggml.pre` name that makes PartsFromGguf choose these settings; nullopt if no name
// does.
std::optional<std::string> PreTokenizerName(size_t max_digits, bool nfc, bool ignore_merges);

// The two tokens of a merge, which files write with one space between; nullopt if it is not so.
std::optional<std::pair<std::string_view, std::string_view>> SplitMerge(std::string_view merge);

// Whatever the files say of its kind, the mask is a control token: nothing typed becomes it, and
// it is never shown.
void MakeMaskControl(TokenizerParts* parts);

}  // namespace spa
