// The little Unicode a tokenizer needs: UTF-8, the character classes of the split patterns, and
// canonical composition (NFC). The classes come from unicode_ranges.h, pinned to what the reference
// tokenizer library uses, so that ids do not depend on the version of an installed library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace spa {

struct Utf8Char {
  char32_t code_point;  // U+FFFD when invalid
  uint8_t length;       // bytes taken: at least 1; of an invalid sequence its maximal subpart
  bool valid;
  bool truncated;  // invalid only because the bytes end inside a character
};

// The character at bytes[pos]; pos < bytes.size().
Utf8Char DecodeUtf8(std::string_view bytes, size_t pos);
void AppendUtf8(char32_t code_point, std::string* out);

bool IsValidUtf8(std::string_view bytes);
// Replaces every invalid byte sequence by U+FFFD (one per maximal invalid subpart, as browsers do).
std::string ToValidUtf8(std::string_view bytes);

// Bits of CharTable.
inline constexpr uint8_t kLetter = 1;  // \p{L}
inline constexpr uint8_t kNumber = 2;  // \p{N}
inline constexpr uint8_t kSpace = 4;   // \s
// NFC may change this character or join it to the one before: everything that is not a stable
// starter.
inline constexpr uint8_t kComposing = 8;

// Classes of all characters; one lookup costs one load.
class CharTable {
 public:
  static const CharTable& Get();
  uint8_t Bits(char32_t code_point) const { return code_point < kNumChars ? bits_[code_point] : 0; }

 private:
  CharTable();
  static constexpr size_t kNumChars = 0x32400;  // no classified character lies above
  uint8_t bits_[kNumChars] = {};
};

// NFC of valid UTF-8. Linear in the length of the text up to sorting runs of marks.
std::string ToNfc(std::string_view text);

}  // namespace spa
