// The reference in docs/ is what the tables say, and every option that a table names is taken by
// the command it belongs to.
#include "engine/option_reference.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "decode/option_table.h"
#include "engine/decode_choices.h"
#include "policies/registry.h"

namespace spa {
namespace {

TEST(OptionReference, DocsAreUpToDate) {
  std::ifstream in(SPA_DOCS_DIR "/options.md");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(text, OptionsMarkdown()) << "make it anew: spa options --markdown > docs/options.md";
}

// A value that the option takes.
std::string Example(const OptionInfo& info) {
  switch (info.type) {
    case OptionType::kCount:
    case OptionType::kReal:
      return fmt::format("{}", info.least);
    case OptionType::kChoice:
      return info.choices.front();
    case OptionType::kFlag:
      return "on";
    case OptionType::kText:
      break;
  }
  return "off";
}

TEST(OptionReference, EveryDecodingOptionIsSetReadBackAndRangeChecked) {
  for (const DecodeOption& option : DecodeOptionTable()) {
    DecodeOptions decode;
    const OptionValue value = ParseOption(option.info, Example(option.info));
    option.set(value, decode);
    const OptionValue again = ParseOption(option.info, option.get(decode));
    EXPECT_EQ(again.number, value.number) << option.info.name;
    DecodeChoices choices;
    EXPECT_NO_THROW(choices.Set(option.info.name, Example(option.info))) << option.info.name;
    if (option.info.type == OptionType::kCount || option.info.type == OptionType::kReal) {
      EXPECT_THROW(choices.Set(option.info.name, fmt::format("{}", option.info.least - 1)), Error);
      EXPECT_THROW(choices.Set(option.info.name, fmt::format("{}", option.info.most * 3)), Error);
    }
    EXPECT_THROW(choices.Set(option.info.name, "x y"), Error) << option.info.name;
  }
  DecodeChoices choices;
  EXPECT_THROW(choices.Set("gen-lenght", "8"), Error);
}

TEST(OptionReference, JsonNamesEveryCacheWithItsOptions) {
  const auto reference = OptionsJson();
  ASSERT_EQ(reference["caches"].size(), Caches().size());
  for (size_t i = 0; i < Caches().size(); ++i) {
    EXPECT_EQ(reference["caches"][i]["name"], Caches()[i].name);
    EXPECT_EQ(reference["caches"][i]["options"].size(), Caches()[i].options.size());
  }
}

}  // namespace
}  // namespace spa
