#include "text/pre_tokenizer.h"

#include <string>

namespace spa {

namespace {

bool IsNewline(char32_t c) { return c == '\r' || c == '\n'; }

char LowerAscii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// Length of an English contraction ('s 't 'm 'd 're 've 'll, any case) at text[pos], or 0.
size_t ContractionLength(std::string_view text, size_t pos) {
  if (text[pos] != '\'' || pos + 1 >= text.size()) return 0;
  const char first = LowerAscii(text[pos + 1]);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (pos + 2 >= text.size()) return 0;
  // Case folding makes U+017F, the long s, an s for the reference regular-expression engines.
  if (text.substr(pos + 1, 2) == "\xC5\xBF") return 3;
  const char second = LowerAscii(text[pos + 2]);
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  return first == 'l' && second == 'l' ? 3 : 0;
}

}  // namespace

std::optional<size_t> MaxDigitsOfPattern(std::string_view pattern) {
  // What the alternatives match does not depend on whether ?+ and ++ are possessive: what follows
  // them never matches a character they could give back. Nor on a + after [\r\n]: \s* before it
  // already takes all newlines but the last.
  std::string plain;
  for (const char c : pattern) {
    const bool possessive =
        c == '+' && !plain.empty() && (plain.back() == '?' || plain.back() == '+');
    if (!possessive) plain.push_back(c);
  }
  for (const std::string_view contractions :
       {"(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'(?i:[sdmt]|ll|ve|re)"}) {
    for (const size_t max_digits : {1, 3}) {
      for (const std::string_view newlines : {R"([\r\n]+)", R"([\r\n])"}) {
        const std::string known = std::string(contractions) + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" +
                                  (max_digits == 3 ? "{1,3}" : "") +
                                  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*)" + std::string(newlines) +
                                  R"(|\s+(?!\S)|\s+)";
        if (plain == known) return max_digits;
      }
    }
  }
  return std::nullopt;
}

size_t WordEnd(std::string_view text, size_t begin, size_t max_digits, const CharTable& table) {
  struct Char {
    char32_t code_point = 0;
    uint8_t bits = 0;
    size_t end = 0;  // where the next character starts; 0 past the end of the text
  };
  const auto char_at = [&](size_t pos) -> Char {
    if (pos >= text.size()) return {};
    const Utf8Char c = DecodeUtf8(text, pos);
    return {c.code_point, table.Bits(c.code_point), pos + c.length};
  };
  // End of the longest run, from `pos` on, of characters that satisfy `accept`.
  const auto skip = [&](size_t pos, auto accept) {
    for (Char c = char_at(pos); c.end != 0 && accept(c); c = char_at(pos)) pos = c.end;
    return pos;
  };
  const auto is_letter = [](const Char& c) { return (c.bits & kLetter) != 0; };
  const auto is_symbol = [](const Char& c) { return (c.bits & (kSpace | kLetter | kNumber)) == 0; };

  // 1. A contraction.
  if (const size_t length = ContractionLength(text, begin); length > 0) return begin + length;

  // 2. Letters, perhaps after one character that is neither newline, letter nor number.
  const Char first = char_at(begin);
  if (is_letter(first)) return skip(first.end, is_letter);
  const Char second = char_at(first.end);
  if ((first.bits & kNumber) == 0 && !IsNewline(first.code_point) && is_letter(second)) {
    return skip(second.end, is_letter);
  }

  // 3. Up to `max_digits` numbers.
  if ((first.bits & kNumber) != 0) {
    size_t num_digits = 0;
    return skip(
        begin, [&](const Char& c) { return (c.bits & kNumber) != 0 && num_digits++ < max_digits; });
  }

  // 4. Symbols, perhaps after one space, and the newlines that follow them.
  if (is_symbol(first) || (first.code_point == ' ' && second.end != 0 && is_symbol(second))) {
    const size_t end = skip(first.end, is_symbol);
    return skip(end, [](const Char& c) { return IsNewline(c.code_point); });
  }

  // What is left is white space. 5. Up to its last newline, if it has one; else 6. all but the last
  // character, which goes with the word that follows; 7. or all of it if nothing follows or it is
  // one character.
  size_t last_newline_end = 0;
  size_t last_char = begin;
  size_t pos = begin;
  for (Char c = first; c.end != 0 && (c.bits & kSpace) != 0; c = char_at(pos)) {
    if (IsNewline(c.code_point)) last_newline_end = c.end;
    last_char = pos;
    pos = c.end;
  }
  if (last_newline_end != 0) return last_newline_end;
  return pos == text.size() || last_char == begin ? pos : last_char;
}

}  // namespace spa
