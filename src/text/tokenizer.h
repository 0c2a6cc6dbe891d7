// Text to token ids and back: byte-level BPE with the split patterns of LLaDA and Dream, read from
// a GGUF file's metadata or from the files of a Hugging Face folder. Immutable after construction;
// any number of threads may use one instance.
#pragma once

#include <cstddef>
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
  // All throw Error when the files are damaged or use a tokenizer this engine does not implement
  // (the message names it).
  static Tokenizer FromGguf(const GgufFile& file);
  // tokenizer.json, or vocab.json with merges.txt; special ids from tokenizer_config.json,
  // special_tokens_map.json and config.json beside them.
  static Tokenizer FromFolder(const std::filesystem::path& folder);
  // The text of a tokenizer.json alone, which declares no special ids; `name` appears in errors.
  static Tokenizer FromJson(std::string_view tokenizer_json, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Plain text: special tokens written out in it stay text. Invalid UTF-8 is replaced by U+FFFD.
  // Throws Error for more than 1 GiB.
  std::vector<TokenId> Encode(std::string_view text) const;
  // As Encode, but added tokens written out in the text become their ids - except the mask token,
  // which is never made from text.
  std::vector<TokenId> EncodeWithSpecial(std::string_view text) const;

  // The bytes of a token: its text, or for added tokens their literal content. Ids without a token
  // give an empty string.
  std::string_view TokenBytes(TokenId id) const;
  bool IsControl(TokenId id) const;  // special tokens: dropped from what users see
  // Joins tokens; control tokens are left out; invalid UTF-8 becomes U+FFFD.
  std::string Decode(const std::vector<TokenId>& ids) const;

  // Largest id + 1. Rows of the embedding beyond it have no token, whatever the source: entries
  // that a GGUF file marks as unused are none.
  size_t vocab_size() const;
  // The added token with this text, else the vocabulary entry with these bytes.
  std::optional<TokenId> Find(std::string_view token_text) const;
  // Ids declared by the files, if any. The mask and the end of a turn are also known by the texts
  // that LLaDA and Dream give them.
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> pad() const;
  std::optional<TokenId> mask() const;
  std::optional<TokenId> end_of_turn() const;
  // The Jinja text in the files, or empty. It is carried along, never run (see chat_template.h).
  const std::string& chat_template() const;

  // What a GGUF writer needs to store this tokenizer (tokens in id order, merges "a b", types as in
  // llama.cpp: 1 normal, 3 control, 4 user-defined, 5 unused; pre-tokenizer name). Read back, it
  // encodes identically.
  struct GgufForm {
    std::vector<std::string> tokens;
    std::vector<int32_t> types;
    std::vector<std::string> merges;
    std::string pre;
    std::string chat_template;
  };
  // `num_rows`: rows of the embedding; ids without a token become "[PADn]", unused. Throws Error if
  // there are fewer rows than tokens, or GGUF has no name for the way this tokenizer splits.
  GgufForm ToGguf(size_t num_rows) const;
  std::string Describe() const;  // one line for `spa inspect`

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace spa
