#include "text/text_stream.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace spa::text_stream_test {
namespace {

const Tokenizer& Mini() {
  static const Tokenizer tokenizer =
      Tokenizer::FromFolder(std::filesystem::path(SPA_TEST_DATA) / "mini_tokenizer");
  return tokenizer;
}

TEST(TextStream, GivesOutWholeCharactersOnly) {
  const std::vector<TokenId> ids = Mini().Encode("a\u4E00\U0001F680!");
  TextStream stream(Mini());
  std::string shown;
  for (const TokenId id : ids) {
    const std::string text = stream.Append({id});
    EXPECT_EQ(text.find("\uFFFD"), std::string::npos);
    EXPECT_TRUE(IsValidUtf8(text));
    shown += text;
  }
  EXPECT_EQ(shown, "a\u4E00\U0001F680!");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStream, ControlTokensAddNothingEvenInsideACharacter) {
  const std::vector<TokenId> ids = Mini().Encode("\u4E00");
  ASSERT_EQ(ids.size(), 3u);
  TextStream stream(Mini());
  EXPECT_EQ(stream.Append({507, ids[0], ids[1]}), "");
  EXPECT_EQ(stream.Append({506}), "");
  EXPECT_EQ(stream.Append({ids[2], 511}), "\u4E00");
}

TEST(TextStream, UnfinishedCharacterBecomesReplacementAtTheEnd) {
  const std::vector<TokenId> ids = Mini().Encode("\U0001F680");
  ASSERT_EQ(ids.size(), 4u);
  TextStream stream(Mini());
  EXPECT_EQ(stream.Append({97, ids[0], ids[1], ids[2]}), "a");
  EXPECT_EQ(stream.Finish(), "\uFFFD");
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_EQ(stream.Append({98}), "b");
}

TEST(TextStream, AnyCutGivesTheSameTextAsDecode) {
  // All bytes, so that every way of being invalid occurs.
  std::vector<TokenId> ids;
  uint32_t state = 1;
  for (int k = 0; k < 20000; ++k) {
    state = state * 1664525 + 1013904223;
    const auto id = static_cast<TokenId>(state >> 24);  // bytes: ids 0 to 255
    // Mostly lead and continuation bytes of the alphabet's ids.
    ids.push_back(k % 3 == 0 ? id : static_cast<TokenId>(128 + id % 128));
  }
  const std::string expected = Mini().Decode(ids);
  for (const size_t piece : {1, 2, 3, 5, 1000}) {
    TextStream stream(Mini());
    std::string text;
    for (size_t pos = 0; pos < ids.size(); pos += piece) {
      text += stream.Append({ids.begin() + pos, ids.begin() + std::min(pos + piece, ids.size())});
    }
    text += stream.Finish();
    EXPECT_EQ(text, expected) << piece;
  }
}

}  // namespace
}  // namespace spa::text_stream_test
