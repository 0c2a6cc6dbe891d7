#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/unicode_ranges.h"

namespace spa {

namespace {

// Whether utf8proc would join this character, stable in the pinned NFC (unicode_ranges.h), with the
// ones after it because its tables are newer: marks, and two Todhri letters (with U+0307).
bool IsActiveInNewerUnicode(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class != 0 ||
         c == 0x105D2 || c == 0x105DA;
}

// Appends the NFC of `cluster` (a stable starter, if any, and the composing characters after it).
void ComposeCluster(std::vector<utf8proc_int32_t>* cluster, std::string* out) {
  std::vector<utf8proc_int32_t> chars;
  chars.reserve(cluster->size() * 2);
  for (const utf8proc_int32_t c : *cluster) {
    utf8proc_int32_t parts[8];  // canonical decompositions have at most 4 characters
    int boundary_class = 0;
    const auto num_parts =
        utf8proc_decompose_char(c, parts, 8, UTF8PROC_DECOMPOSE, &boundary_class);
    SPA_CHECK(num_parts > 0 && num_parts <= 8);
    chars.insert(chars.end(), parts, parts + num_parts);
  }
  // Canonical order, by our own sort: utf8proc's is an insertion sort, quadratic in the length of a
  // run of marks, and runs come from users.
  const auto combining_class = [](utf8proc_int32_t c) {
    return utf8proc_get_property(c)->combining_class;
  };
  for (auto run = chars.begin(); run != chars.end();) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end =
        std::find_if(run, chars.end(), [&](auto c) { return combining_class(c) == 0; });
    std::stable_sort(run, end,
                     [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
  const auto length =
      utf8proc_normalize_utf32(chars.data(), static_cast<utf8proc_ssize_t>(chars.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  SPA_CHECK(length >= 0);
  for (utf8proc_ssize_t k = 0; k < length; ++k) AppendUtf8(static_cast<char32_t>(chars[k]), out);
}

}  // namespace

Utf8Char DecodeUtf8(std::string_view bytes, size_t pos) {
  const auto at = [&](size_t k) { return static_cast<uint8_t>(bytes[k]); };
  const uint8_t lead = at(pos);
  if (lead < 0x80) return {lead, 1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {0xFFFD, 1, false, false};
  const int num_continuations = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
  char32_t code_point = lead & (0x3F >> num_continuations);
  // The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF.
  uint8_t lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  uint8_t highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (int k = 1; k <= num_continuations; ++k) {
    const auto taken = static_cast<uint8_t>(k);
    if (pos + k >= bytes.size()) return {0xFFFD, taken, false, true};
    if (at(pos + k) < lowest || at(pos + k) > highest) return {0xFFFD, taken, false, false};
    code_point = code_point << 6 | (at(pos + k) & 0x3F);
    lowest = 0x80;
    highest = 0xBF;
  }
  return {code_point, static_cast<uint8_t>(num_continuations + 1), true, false};
}

void AppendUtf8(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
    return;
  }
  if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
  } else {
    if (c < 0x10000) {
      out->push_back(static_cast<char>(0xE0 | c >> 12));
    } else {
      out->push_back(static_cast<char>(0xF0 | c >> 18));
      out->push_back(static_cast<char>(0x80 | (c >> 12 & 0x3F)));
    }
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 0x3F)));
  }
  out->push_back(static_cast<char>(0x80 | (c & 0x3F)));
}

bool IsValidUtf8(std::string_view bytes) {
  for (size_t pos = 0; pos < bytes.size();) {
    uint64_t eight;
    if (pos + sizeof(eight) <= bytes.size()) {
      std::memcpy(&eight, bytes.data() + pos, sizeof(eight));
      if ((eight & 0x8080808080808080) == 0) {
        pos += sizeof(eight);
        continue;
      }
    }
    const Utf8Char c = DecodeUtf8(bytes, pos);
    if (!c.valid) return false;
    pos += c.length;
  }
  return true;
}

std::string ToValidUtf8(std::string_view bytes) {
  if (IsValidUtf8(bytes)) return std::string(bytes);
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 8);
  for (size_t pos = 0; pos < bytes.size();) {
    const Utf8Char c = DecodeUtf8(bytes, pos);
    AppendUtf8(c.code_point, &out);
    pos += c.length;
  }
  return out;
}

const CharTable& CharTable::Get() {
  static const std::unique_ptr<const CharTable> table(new CharTable);
  return *table;
}

CharTable::CharTable() {
  const auto mark = [&](const auto& ranges, uint8_t bit) {
    for (const auto& [first, last] : ranges) {
      SPA_CHECK(last < kNumChars);
      for (uint32_t c = first; c <= last; ++c) bits_[c] |= bit;
    }
  };
  mark(kLetterRanges, kLetter);
  mark(kNumberRanges, kNumber);
  mark(kSpaceRanges, kSpace);
  mark(kComposingRanges, kComposing);
}

std::string ToNfc(std::string_view text) {
  const CharTable& table = CharTable::Get();
  std::string out;
  std::vector<utf8proc_int32_t> cluster;
  size_t copied = 0;   // text[0, copied) is in `out`
  size_t starter = 0;  // where the last stable starter begins
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = DecodeUtf8(text, pos);
    if ((table.Bits(c.code_point) & kComposing) == 0) {
      starter = pos;
      pos += c.length;
      continue;
    }
    if (starter < pos && IsActiveInNewerUnicode(DecodeUtf8(text, starter).code_point)) {
      starter = pos;
    }
    size_t end = starter;
    cluster.clear();
    while (end < text.size()) {
      const Utf8Char next = DecodeUtf8(text, end);
      if (end >= pos && (table.Bits(next.code_point) & kComposing) == 0) break;
      cluster.push_back(static_cast<utf8proc_int32_t>(next.code_point));
      end += next.length;
    }
    out.append(text.substr(copied, starter - copied));
    ComposeCluster(&cluster, &out);
    copied = starter = pos = end;
  }
  if (copied == 0) return std::string(text);
  out.append(text.substr(copied));
  return out;
}

}  // namespace spa
