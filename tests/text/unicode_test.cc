#include "text/unicode.h"

#include <gtest/gtest.h>

#include <string>

namespace spa {
namespace {

TEST(ToValidUtf8, KeepsValidText) {
  const std::string text = "a\u00E9\u4E00\U0001F680\U0010FFFF";
  EXPECT_EQ(ToValidUtf8(text), text);
  EXPECT_EQ(ToValidUtf8(""), "");
  EXPECT_EQ(ToValidUtf8(std::string(3, '\0')), std::string(3, '\0'));
}

TEST(ToValidUtf8, ReplacesEachMaximalSubpartOnce) {
  EXPECT_EQ(ToValidUtf8("\x80"), "\uFFFD");
  EXPECT_EQ(ToValidUtf8("\xFF\xFE"), "\uFFFD\uFFFD");
  EXPECT_EQ(ToValidUtf8("\xC0\xAF"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(ToValidUtf8("\xE0\x80\xAF"), "\uFFFD\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(ToValidUtf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // surrogate
  EXPECT_EQ(ToValidUtf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
  EXPECT_EQ(ToValidUtf8("\xE4\xB8z"), "\uFFFDz");                          // two of three bytes
  EXPECT_EQ(ToValidUtf8("\xF0\x9F\x9A"), "\uFFFD");                        // three of four
  EXPECT_EQ(ToValidUtf8("\xF0\x9F\xE4\xB8\x80"), "\uFFFD\u4E00");
  EXPECT_EQ(ToValidUtf8("a\xF1\x80\x80\xE1\x80\xC2z"), "a\uFFFD\uFFFD\uFFFDz");  // Unicode 3-8
}

TEST(IsValidUtf8, FindsAnInvalidByteAnywhere) {
  for (size_t pos = 0; pos < 40; ++pos) {
    std::string text(40, 'x');
    EXPECT_TRUE(IsValidUtf8(text));
    text[pos] = '\xBF';
    EXPECT_FALSE(IsValidUtf8(text)) << pos;
  }
}

TEST(Utf8, EveryCodePointSurvives) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string bytes;
    AppendUtf8(c, &bytes);
    const Utf8Char decoded = DecodeUtf8(bytes, 0);
    ASSERT_TRUE(decoded.valid && decoded.code_point == c && decoded.length == bytes.size())
        << uint32_t{c};
  }
}

TEST(CharTable, KnowsClassesOfManyScripts) {
  const auto expect_class = [](std::u32string_view chars, int expected) {
    for (const char32_t c : chars) {
      EXPECT_EQ(CharTable::Get().Bits(c) & (kLetter | kNumber | kSpace), expected) << uint32_t{c};
    }
  };
  expect_class(U"aZ\u00E9\u03B1\u0416\u05D0\u0639\u0905\u0E01\u4E00\uAC00\U0002A6D6", kLetter);
  expect_class(U"09\u00B2\u00BD\u0663\u096A\u2167\u3007\U0001D7CE", kNumber);
  expect_class(U" \t\n\v\f\r\u0085\u00A0\u1680\u2000\u2028\u2029\u202F\u3000", kSpace);
  expect_class(U"'_-\u0301\u200B\u200D\u180E\uFEFF\u001F\U0001F680\uFFFD\U0010FFFF", 0);
}

TEST(ToNfc, ComposesAndReorders) {
  const std::pair<const char*, const char*> cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"cafe\u0301 au lait", "caf\u00E9 au lait"},
      {"\u212B\u2126", "\u00C5\u03A9"},    // singletons
      {"q\u0307\u0323", "q\u0323\u0307"},  // canonical order
      {"\u1E9B\u0323", "\u1E9B\u0323"},
      {"D\u0307\u0323", "\u1E0C\u0307"},
      {"\u1112\u1161\u11AB", "\uD55C"},  // Hangul L V T
      {"\uD558\u11AB", "\uD55C"},        // Hangul LV T
      {"\u0958", "\u0915\u093C"},        // excluded from composition
      {"\u0344", "\u0308\u0301"},
      {"\u09C7\u09BE", "\u09CB"},  // second part has class 0
      {"\u0301a", "\u0301a"},      // begins with a mark
      {"a\u0315\u0300\u05AE\u0300b",
       "\u00E0\u05AE\u0300\u0315"
       "b"},
      {"\uF900", "\u8C48"},  // CJK compatibility
      {"\u304B\u3099", "\u304C"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(ToNfc(text), expected) << text;
}

TEST(ToNfc, LeavesCharactersOfNewerUnicodeAlone) {
  // As the reference library does; utf8proc would reorder the first two and compose the third.
  for (const char* text :
       {"a\u0345\u0898", "a\u08CC\u0334", "\U00011935\U00011930", "\U000105D2\u0307"}) {
    EXPECT_EQ(ToNfc(text), text);
  }
}

}  // namespace
}  // namespace spa
