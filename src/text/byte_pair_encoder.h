// Byte-pair encoding: the vocabulary, and the ranked merges that turn a word's bytes into its
// tokens. Works on plain bytes; the printable alphabet in which vocabulary files spell bytes is
// translated when entries come in and when they go out. Immutable once built, so any number of
// threads may encode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spa {

using TokenId = int32_t;

// Above any vocabulary in use (the largest have some 260,000 entries), so that a damaged id cannot
// make us reserve the memory for billions.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 22) - 1;

enum class TokenKind : uint8_t {
  kNone,         // no token has this id
  kNormal,       // made of bytes by merges
  kUserDefined,  // added token, visible text
  kControl,      // added token, structure: never shown, never made from plain text
};

// Byte-level alphabets write byte b as a printable character: itself if printable in Latin-1, else
// U+0100 and up. nullopt if a character of `text` stands for no byte.
std::optional<std::string> BytesFromAlphabet(std::string_view text);
std::string BytesToAlphabet(std::string_view bytes);

class Vocabulary {
 public:
  // `capacity`: number of entries expected.
  explicit Vocabulary(size_t capacity);

  // All throw Error when an id is out of range or taken by another token, or a text is repeated.
  // Added tokens come first: an entry of the vocabulary file may repeat them.
  void AddAdded(int64_t id, std::string_view content, bool control);
  // `text` in the alphabet of vocabulary files.
  void AddNormal(int64_t id, std::string_view text);

  size_t size() const { return entries_.size(); }  // largest id + 1
  TokenKind kind(TokenId id) const;
  std::string_view Bytes(TokenId id) const;  // empty for ids without a token
  // The token that merges may produce for these bytes.
  std::optional<TokenId> FindNormal(std::string_view bytes) const;
  size_t longest_normal_bytes() const { return longest_normal_bytes_; }

 private:
  struct Entry {
    uint32_t begin = 0;  // in arena_
    uint32_t length = 0;
    TokenKind kind = TokenKind::kNone;
  };
  struct Slot {
    uint32_t hash = 0;
    TokenId id = -1;
  };
  Entry& NewEntry(int64_t id, std::string_view text);
  // The slot that holds these bytes, or the empty one where they belong.
  size_t FindSlot(std::string_view bytes, uint32_t hash) const;
  void InsertNormal(TokenId id);

  std::string arena_;  // all texts
  std::vector<Entry> entries_;
  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
  size_t num_normal_ = 0;
  size_t longest_normal_bytes_ = 0;
};

class BytePairEncoder {
 public:
  using MergeText = std::pair<std::string_view, std::string_view>;

  // `merges` best first, in the alphabet of vocabulary files. With `whole_words_first` a word that
  // is a vocabulary entry becomes that token without merging (ignore_merges in tokenizer.json).
  // Throws Error if a merge names or makes a token the vocabulary lacks, or a byte has no token.
  BytePairEncoder(Vocabulary vocabulary, const std::vector<MergeText>& merges,
                  bool whole_words_first);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const std::vector<std::pair<TokenId, TokenId>>& merges() const { return merges_; }
  bool whole_words_first() const { return whole_words_first_; }

  // Appends the tokens of one word of valid UTF-8.
  void EncodeWord(std::string_view word, std::vector<TokenId>* out) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint64_t pair = UINT64_MAX;  // left << 32 | right
    uint32_t rank = kNoRank;
    TokenId result = -1;
  };
  static uint64_t Pair(TokenId left, TokenId right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }
  // Index in slots_ of this merge, or of the empty slot where it belongs.
  size_t FindSlot(TokenId left, TokenId right) const;
  const Merge& FindMerge(TokenId left, TokenId right) const {
    return slots_[FindSlot(left, right)];
  }
  void EncodeShort(std::string_view word, std::vector<TokenId>* out) const;
  void EncodeLong(std::string_view word, std::vector<TokenId>* out) const;

  Vocabulary vocabulary_;
  TokenId byte_ids_[256];
  std::vector<std::pair<TokenId, TokenId>> merges_;  // by rank
  std::vector<Merge> slots_;  // open addressing; a power of two, at most half full
  int slot_shift_;
  bool whole_words_first_;
};

}  // namespace spa
