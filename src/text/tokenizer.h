// Text to token ids and back: byte-level BPE with the split patterns of LLaDA and Dream, read from
// a GGUF file's metadata or from the files of a Hugging Face folder. Immutable after construction;
// any number of threads may use one instance.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "file/gguf.h"

namespace spa {

using TokenId = int32_t;

class Tokenizer {
 public:
  // Both throw Error when the files are damaged or use a tokenizer this engine does not implement
  // (the message names it).
  static Tokenizer FromGguf(const GgufFile& file);
  static Tokenizer FromFolder(const std::filesystem::path& folder);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Plain text: special tokens written out in it stay text. Invalid UTF-8 is replaced by U+FFFD.
  std::vector<TokenId> Encode(std::string_view text) const;
  // As Encode, but added tokens written out in the text become their ids - except the mask token,
  // which is never made from text.
  std::vector<TokenId> EncodeWithSpecial(std::string_view text) const;

  // The bytes of a token: its text, or for added tokens their literal content. Ids outside the
  // vocabulary give an empty string.
  std::string_view TokenBytes(TokenId id) const;
  bool IsControl(TokenId id) const;  // special tokens: dropped from what users see
  // Joins tokens; control tokens are left out; invalid UTF-8 becomes U+FFFD.
  std::string Decode(const std::vector<TokenId>& ids) const;

  size_t vocab_size() const;  // largest id + 1
  std::optional<TokenId> Find(std::string_view token_text) const;  // added or vocabulary entry
  // Ids declared by the files, if any.
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> pad() const;
  std::optional<TokenId> mask() const;
  // What a GGUF writer needs to store this tokenizer (tokens in id order, merges "a b", types as in
  // llama.cpp: 1 normal, 3 control, 4 user-defined, 5 unused; pre-tokenizer name).
  struct GgufForm {
    std::vector<std::string> tokens;
    std::vector<int32_t> types;
    std::vector<std::string> merges;
    std::string pre;
    std::string chat_template;
  };
  // `num_rows`: rows of the embedding; ids without a token become "[PADn]", unused.
  GgufForm ToGguf(size_t num_rows) const;
  std::string Describe() const;  // one line for `spa inspect`

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spa
