#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace spa {
namespace {

using Words = std::vector<std::string>;

Words Split(std::string_view text, size_t max_digits = 1) {
  Words words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = WordEnd(text, begin, max_digits, CharTable::Get());
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

TEST(WordEnd, WordsTakeOneCharacterBeforeThem) {
  EXPECT_EQ(Split("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(Split("a-b_c\td"), (Words{"a", "-b", "_c", "\td"}));
  EXPECT_EQ(Split("(x) {y}"), (Words{"(x", ")", " {", "y", "}"}));
  EXPECT_EQ(Split("e\u0301t"), (Words{"e", "\u0301t"}));  // marks are not letters
}

TEST(WordEnd, ContractionsOfAnyCase) {
  EXPECT_EQ(Split("don't I'LL we'Ve"), (Words{"don", "'t", " I", "'LL", " we", "'Ve"}));
  EXPECT_EQ(Split("'sx 'lx 'r"), (Words{"'s", "x", " '", "lx", " '", "r"}));
  EXPECT_EQ(Split("'\u017Fa"), (Words{"'\u017F", "a"}));  // long s
  EXPECT_EQ(Split("'"), (Words{"'"}));
}

TEST(WordEnd, DigitsOneByOneOrByThrees) {
  EXPECT_EQ(Split("1234 5"), (Words{"1", "2", "3", "4", " ", "5"}));
  EXPECT_EQ(Split("1234567", 3), (Words{"123", "456", "7"}));
  EXPECT_EQ(Split("\u0661\u0662\u00BD\u2167", 3), (Words{"\u0661\u0662\u00BD", "\u2167"}));
}

TEST(WordEnd, SymbolsTakeASpaceBeforeAndNewlinesAfter) {
  EXPECT_EQ(Split("a !?\r\n\nb"), (Words{"a", " !?\r\n\n", "b"}));
  EXPECT_EQ(Split("\t!"), (Words{"\t", "!"}));
  EXPECT_EQ(Split("!\n x"), (Words{"!\n", " x"}));
}

TEST(WordEnd, WhiteSpace) {
  EXPECT_EQ(Split("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(Split("a   "), (Words{"a", "   "}));
  EXPECT_EQ(Split("a \n \n  b"), (Words{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(Split("a  1"), (Words{"a", " ", " ", "1"}));
  EXPECT_EQ(Split(" \u3000\u00A0x"), (Words{" \u3000", "\u00A0x"}));
  EXPECT_EQ(Split("\n\n  "), (Words{"\n\n", "  "}));
}

TEST(MaxDigitsOfPattern, KnowsItsPatternsAndNoOthers) {
  const std::string tail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string head = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
  EXPECT_EQ(MaxDigitsOfPattern(head + R"(\p{N})" + tail), 1);
  EXPECT_EQ(MaxDigitsOfPattern(head + R"(\p{N}{1,3})" + tail), 3);
  EXPECT_EQ(MaxDigitsOfPattern(head + R"(\p{N}{1,2})" + tail), std::nullopt);
  EXPECT_EQ(MaxDigitsOfPattern(head + R"(\p{N}+)" + tail), std::nullopt);
  EXPECT_EQ(MaxDigitsOfPattern(""), std::nullopt);
  EXPECT_EQ(MaxDigitsOfPattern(head), std::nullopt);
}

}  // namespace
}  // namespace spa
