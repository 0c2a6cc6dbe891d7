#include "text/byte_pair_encoder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <queue>

#include "base/error.h"
#include "file/quoted.h"
#include "text/unicode.h"

namespace spa {

namespace {

bool IsPrintableLatin1(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct Alphabet {
  std::array<char32_t, 256> char_of_byte;
  std::array<int16_t, 324> byte_of_char;  // -1: stands for no byte

  Alphabet() {
    byte_of_char.fill(-1);
    char32_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      char_of_byte[byte] = IsPrintableLatin1(byte) ? static_cast<char32_t>(byte) : next++;
      byte_of_char[char_of_byte[byte]] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& GetAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

uint32_t HashBytes(std::string_view bytes) {
  return static_cast<uint32_t>(std::hash<std::string_view>()(bytes));
}

bool AppendBytesFromAlphabet(std::string_view text, std::string* out) {
  const Alphabet& alphabet = GetAlphabet();
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = DecodeUtf8(text, pos);
    if (c.code_point >= alphabet.byte_of_char.size()) return false;
    const int16_t byte = alphabet.byte_of_char[c.code_point];
    if (byte < 0) return false;
    out->push_back(static_cast<char>(byte));
    pos += c.length;
  }
  return true;
}

}  // namespace

std::optional<std::string> BytesFromAlphabet(std::string_view text) {
  std::string bytes;
  if (!AppendBytesFromAlphabet(text, &bytes)) return std::nullopt;
  return bytes;
}

std::string BytesToAlphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    AppendUtf8(GetAlphabet().char_of_byte[static_cast<uint8_t>(byte)], &text);
  }
  return text;
}

Vocabulary::Vocabulary(size_t capacity) {
  slots_.resize(std::bit_ceil(std::max<size_t>(capacity, 512) * 2));
  entries_.reserve(capacity);
  arena_.reserve(capacity * 8);  // tokens of the large vocabularies have 6 to 7 bytes on average
}

TokenKind Vocabulary::kind(TokenId id) const {
  return id >= 0 && static_cast<size_t>(id) < entries_.size() ? entries_[id].kind
                                                              : TokenKind::kNone;
}

std::string_view Vocabulary::Bytes(TokenId id) const {
  if (kind(id) == TokenKind::kNone) return {};
  return std::string_view(arena_).substr(entries_[id].begin, entries_[id].length);
}

Vocabulary::Entry& Vocabulary::NewEntry(int64_t id, std::string_view text) {
  if (id < 0 || id > kMaxTokenId) {
    throw Error("the tokenizer gives {} the id {}; ids must lie in 0..{}", Quoted(text), id,
                kMaxTokenId);
  }
  if (static_cast<size_t>(id) >= entries_.size()) entries_.resize(id + 1);
  Entry& entry = entries_[id];
  if (entry.kind != TokenKind::kNone) {
    throw Error("the tokenizer gives the id {} to both {} and {}", id,
                Quoted(Bytes(static_cast<TokenId>(id))), Quoted(text));
  }
  if (arena_.size() + text.size() > UINT32_MAX) throw Error("the vocabulary exceeds 4 GiB");
  entry.begin = static_cast<uint32_t>(arena_.size());
  return entry;
}

void Vocabulary::AddAdded(int64_t id, std::string_view content, bool control) {
  if (content.empty()) throw Error("the tokenizer's added token {} has no text", id);
  Entry& entry = NewEntry(id, content);
  arena_ += content;
  entry.length = static_cast<uint32_t>(content.size());
  entry.kind = control ? TokenKind::kControl : TokenKind::kUserDefined;
}

void Vocabulary::AddNormal(int64_t id, std::string_view text) {
  if (id >= 0 && id <= kMaxTokenId) {
    const TokenKind existing = kind(static_cast<TokenId>(id));
    const bool is_added = existing == TokenKind::kUserDefined || existing == TokenKind::kControl;
    if (is_added && Bytes(static_cast<TokenId>(id)) == text) {
      // Merges may still make a visible added token, but nothing typed may become a control token.
      if (existing == TokenKind::kUserDefined) InsertNormal(static_cast<TokenId>(id));
      return;
    }
  }
  Entry& entry = NewEntry(id, text);
  const bool is_bytes = AppendBytesFromAlphabet(text, &arena_);
  if (!is_bytes) {  // no merge can make it; it stands for its literal text
    arena_.resize(entry.begin);
    arena_ += text;
  }
  entry.length = static_cast<uint32_t>(arena_.size() - entry.begin);
  entry.kind = TokenKind::kNormal;
  if (is_bytes) InsertNormal(static_cast<TokenId>(id));
}

size_t Vocabulary::FindSlot(std::string_view bytes, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot].id >= 0 && (slots_[slot].hash != hash || Bytes(slots_[slot].id) != bytes)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

void Vocabulary::InsertNormal(TokenId id) {
  const std::string_view bytes = Bytes(id);
  if (2 * ++num_normal_ > slots_.size()) {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id >= 0) slots_[FindSlot(Bytes(slot.id), slot.hash)] = slot;
    }
  }
  const uint32_t hash = HashBytes(bytes);
  Slot& slot = slots_[FindSlot(bytes, hash)];
  if (slot.id >= 0) {
    throw Error("the tokenizer has {} twice, as {} and {}", Quoted(bytes), slot.id, id);
  }
  slot = {hash, id};
  longest_normal_bytes_ = std::max(longest_normal_bytes_, bytes.size());
}

std::optional<TokenId> Vocabulary::FindNormal(std::string_view bytes) const {
  const Slot& slot = slots_[FindSlot(bytes, HashBytes(bytes))];
  if (slot.id < 0) return std::nullopt;
  return slot.id;
}

BytePairEncoder::BytePairEncoder(Vocabulary vocabulary, const std::vector<MergeText>& merges,
                                 bool whole_words_first)
    : vocabulary_(std::move(vocabulary)), whole_words_first_(whole_words_first) {
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const auto id = vocabulary_.FindNormal(std::string_view(&text, 1));
    const bool in_utf8 = byte < 0xC0 || (byte >= 0xC2 && byte <= 0xF4);
    if (!id && in_utf8) {
      throw Error("the tokenizer has no token for byte 0x{:02x}; it is not a byte-level one", byte);
    }
    byte_ids_[byte] = id.value_or(-1);
  }
  if (merges.size() >= kNoRank / 4) throw Error("the tokenizer has too many merges");
  const size_t num_slots = std::bit_ceil(std::max<size_t>(merges.size(), 8) * 2);
  slots_.resize(num_slots);
  slot_shift_ = 64 - std::countr_zero(num_slots);
  merges_.reserve(merges.size());
  std::string bytes;
  TokenId last_result = -1;
  for (const auto& [left_text, right_text] : merges) {
    bytes.clear();
    const bool left_is_bytes = AppendBytesFromAlphabet(left_text, &bytes);
    const size_t left_length = bytes.size();
    const bool right_is_bytes = AppendBytesFromAlphabet(right_text, &bytes);
    const std::string_view whole = bytes;
    std::optional<TokenId> left, right, result;
    if (left_is_bytes && right_is_bytes) {
      left = vocabulary_.FindNormal(whole.substr(0, left_length));
      right = vocabulary_.FindNormal(whole.substr(left_length));
      // Vocabularies number tokens in the order of the merges that make them; asking for the next
      // id first saves most of these lookups.
      const TokenId expected = last_result + 1;
      result =
          vocabulary_.kind(expected) == TokenKind::kNormal && vocabulary_.Bytes(expected) == whole
              ? expected
              : vocabulary_.FindNormal(whole);
    }
    if (!left || !right || !result) {
      const std::string_view missing = !left ? left_text : right_text;
      throw Error("merge {} of the tokenizer, {} + {}, names a token that the vocabulary lacks: {}",
                  merges_.size(), Quoted(left_text), Quoted(right_text),
                  left && right ? Quoted(std::string(left_text) + std::string(right_text))
                                : Quoted(missing));
    }
    // A pair listed twice keeps its last rank, as in the reference library.
    const auto rank = static_cast<uint32_t>(merges_.size());
    slots_[FindSlot(*left, *right)] = {Pair(*left, *right), rank, *result};
    merges_.emplace_back(*left, *right);
    last_result = *result;
  }
}

size_t BytePairEncoder::FindSlot(TokenId left, TokenId right) const {
  const uint64_t pair = Pair(left, right);
  size_t slot = pair * 0x9E3779B97F4A7C15 >> slot_shift_;  // Fibonacci hashing
  while (slots_[slot].pair != pair && slots_[slot].rank != kNoRank) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

void BytePairEncoder::EncodeWord(std::string_view word, std::vector<TokenId>* out) const {
  if (whole_words_first_ && word.size() <= vocabulary_.longest_normal_bytes()) {
    if (const auto id = vocabulary_.FindNormal(word)) {
      out->push_back(*id);
      return;
    }
  }
  // Scanning all pairs for the best one is faster than a heap for what most words are: short.
  constexpr size_t kShortWordBytes = 32;
  static_assert(kShortWordBytes <= 32, "EncodeShort's arrays");
  if (word.size() <= kShortWordBytes) {
    EncodeShort(word, out);
  } else {
    EncodeLong(word, out);
  }
}

void BytePairEncoder::EncodeShort(std::string_view word, std::vector<TokenId>* out) const {
  TokenId ids[32];
  uint32_t ranks[32];   // of the pair (k, k + 1)
  TokenId results[32];  // of that pair
  size_t num_ids = word.size();
  const auto rate_pair = [&](size_t k) {
    const Merge& merge = FindMerge(ids[k], ids[k + 1]);
    ranks[k] = merge.rank;
    results[k] = merge.result;
  };
  for (size_t k = 0; k < num_ids; ++k) ids[k] = byte_ids_[static_cast<uint8_t>(word[k])];
  for (size_t k = 0; k + 1 < num_ids; ++k) rate_pair(k);
  while (num_ids > 1) {
    const size_t best = std::min_element(ranks, ranks + num_ids - 1) - ranks;  // leftmost
    if (ranks[best] == kNoRank) break;
    ids[best] = results[best];
    --num_ids;
    std::copy(ids + best + 2, ids + num_ids + 1, ids + best + 1);
    if (best + 1 < num_ids) {
      std::copy(ranks + best + 2, ranks + num_ids, ranks + best + 1);
      std::copy(results + best + 2, results + num_ids, results + best + 1);
      rate_pair(best);
    }
    if (best > 0) rate_pair(best - 1);
  }
  out->insert(out->end(), ids, ids + num_ids);
}

void BytePairEncoder::EncodeLong(std::string_view word, std::vector<TokenId>* out) const {
  constexpr uint32_t kEnd = UINT32_MAX;
  struct Symbol {
    TokenId id;  // -1 once merged into its left neighbour
    uint32_t previous;
    uint32_t next;
  };
  struct Candidate {
    uint32_t rank;
    uint32_t pos;  // of the left symbol
    TokenId left, right;
    TokenId result;
    bool operator<(const Candidate& other) const {  // the greatest is merged first
      return rank != other.rank ? rank > other.rank : pos > other.pos;
    }
  };
  SPA_CHECK(word.size() < kEnd);
  const auto num_bytes = static_cast<uint32_t>(word.size());
  std::vector<Symbol> symbols(num_bytes);
  for (uint32_t pos = 0; pos < num_bytes; ++pos) {
    symbols[pos] = {byte_ids_[static_cast<uint8_t>(word[pos])], pos - 1,
                    pos + 1 < num_bytes ? pos + 1 : kEnd};  // the first one's previous is kEnd
  }
  const auto candidate_at = [&](uint32_t pos) -> Candidate {
    const TokenId left = symbols[pos].id;
    const TokenId right = symbols[symbols[pos].next].id;
    const Merge& merge = FindMerge(left, right);
    return {merge.rank, pos, left, right, merge.result};
  };
  std::vector<Candidate> initial;
  for (uint32_t pos = 0; pos + 1 < num_bytes; ++pos) {
    const Candidate candidate = candidate_at(pos);
    if (candidate.rank != kNoRank) initial.push_back(candidate);
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(initial));
  const auto offer = [&](uint32_t pos) {
    const Candidate candidate = candidate_at(pos);
    if (candidate.rank != kNoRank) queue.push(candidate);
  };
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.pos];
    if (left.id != best.left || left.next == kEnd || symbols[left.next].id != best.right) {
      continue;  // stale: one of the two has been merged since
    }
    Symbol& right = symbols[left.next];
    left.id = best.result;
    right.id = -1;
    left.next = right.next;
    if (left.next != kEnd) {
      symbols[left.next].previous = best.pos;
      offer(best.pos);
    }
    if (left.previous != kEnd) offer(left.previous);
  }
  for (uint32_t pos = 0; pos != kEnd; pos = symbols[pos].next) out->push_back(symbols[pos].id);
}

}  // namespace spa
