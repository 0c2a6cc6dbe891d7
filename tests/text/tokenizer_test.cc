#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "file/gguf_writer.h"
#include "tests/text/dream_folder.h"
#include "text/unicode.h"

namespace spa::tokenizer_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

const fs::path kData = SPA_TEST_DATA;
const fs::path kMiniFolder = kData / "mini_tokenizer";

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

const Tokenizer& Mini() {
  static const Tokenizer tokenizer = Tokenizer::FromFolder(kMiniFolder);
  return tokenizer;
}

const Tokenizer& Dream() {
  static const Tokenizer tokenizer = Tokenizer::FromFolder(DreamFolder());
  return tokenizer;
}

// The message of the Error that `action` throws; it must be one line.
std::string ErrorOf(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  }
  return "no error";
}

class TempFolder {
 public:
  TempFolder() {
    path_ =
        fs::temp_directory_path() /
        ("spa_tokenizer_test_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
         "_" + std::to_string(reinterpret_cast<uintptr_t>(this)));
    fs::create_directories(path_);
  }
  ~TempFolder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  fs::path path_;
};

// A GGUF file with nothing but this tokenizer.
class GgufTokenizer {
 public:
  explicit GgufTokenizer(const Tokenizer::GgufForm& form,
                         const std::vector<std::pair<std::string, uint32_t>>& ids = {}) {
    const fs::path path = folder_.path() / "tokenizer.gguf";
    GgufWriter writer(path);
    writer.AddString("general.architecture", "llada");
    writer.AddString("tokenizer.ggml.model", "gpt2");
    writer.AddString("tokenizer.ggml.pre", form.pre);
    writer.AddStrings("tokenizer.ggml.tokens", form.tokens);
    writer.AddInt32s("tokenizer.ggml.token_type", form.types);
    writer.AddStrings("tokenizer.ggml.merges", form.merges);
    writer.AddString("tokenizer.chat_template", form.chat_template);
    for (const auto& [key, id] : ids) writer.AddUint32("tokenizer.ggml." + key, id);
    writer.BeginData();
    writer.Finish();
    file_ = std::make_unique<GgufFile>(path);
  }
  Tokenizer Load() const { return Tokenizer::FromGguf(*file_); }

 private:
  TempFolder folder_;
  std::unique_ptr<GgufFile> file_;
};

Json VectorsOf(const std::string& name) {
  return Json::parse(ReadFile(kData / ("tokenizer_vectors_" + name + ".json")));
}

void ExpectVectors(const Tokenizer& tokenizer, const Json& vectors) {
  ASSERT_GT(vectors.size(), 100u);
  for (const Json& vector : vectors) {
    const std::string text = vector["text"];
    EXPECT_EQ(tokenizer.Encode(text), vector["ids"].get<Ids>()) << vector["text"].dump();
  }
}

TEST(Tokenizer, AgreesWithReferenceLibraryOnMiniVocabulary) {
  ExpectVectors(Mini(), VectorsOf("mini"));
}

TEST(Tokenizer, AgreesWithReferenceLibraryOnDreamVocabulary) {
  ExpectVectors(Dream(), VectorsOf("dream"));
}

// The hashes (FNV-1a) are those of the published files.
TEST(DreamFolder, HasThePublishedVocabularyByteForByte) {
  const auto hash = [](const std::string& bytes) {
    uint64_t value = 0xcbf29ce484222325;
    for (const char c : bytes) value = (value ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    return value;
  };
  EXPECT_EQ(hash(ReadFile(DreamFolder() / "merges.txt")), 0x4e6a946f451680c3);
  EXPECT_EQ(hash(ReadFile(DreamFolder() / "vocab.json")), 0x7b606d9178d7a39e);
}

TEST(Tokenizer, EncodesDreamGoldenTexts) {
  const std::pair<std::string, Ids> goldens[] = {
      {"Hello world", {9707, 1879}},
      {" Hello world", {21927, 1879}},
      {"2025-08-22", {17, 15, 17, 20, 12, 15, 23, 12, 17, 17}},
      {"I'LL  go\n\n  x", {40, 6, 4086, 220, 728, 271, 220, 856}},
      {"\t\tif x:\r\n", {197, 743, 856, 2834}},
      {"cafe\u0301", {924, 58858}},
      {"\u6211\u60F3\u5728apple\u5DE5\u4F5C", {104100, 18493, 22377, 99257}},
      {"\U0001F680 ok", {145836, 5394}},
      {"   trailing   ", {256, 27748, 262}},
  };
  for (const auto& [text, ids] : goldens) EXPECT_EQ(Dream().Encode(text), ids) << text;
}

TEST(Tokenizer, DecodesWhatItEncodes) {
  for (const Json& vector : VectorsOf("mini")) {
    const std::string text = vector["text"];
    EXPECT_EQ(Mini().Decode(Mini().Encode(text)), ToNfc(text));
  }
}

TEST(Tokenizer, KnowsSpecialIdsOfFolders) {
  EXPECT_EQ(Mini().vocab_size(), 512u);
  EXPECT_EQ(Mini().bos(), 507);
  EXPECT_EQ(Mini().eos(), 506);
  EXPECT_EQ(Mini().pad(), 506);
  EXPECT_EQ(Mini().mask(), 511);
  EXPECT_EQ(Mini().end_of_turn(), 510);
  EXPECT_NE(Mini().chat_template().find("<|eot_id|>"), std::string::npos);
  EXPECT_EQ(Dream().vocab_size(), 151667u);
  EXPECT_EQ(Dream().bos(), 151665);
  EXPECT_EQ(Dream().eos(), 151643);
  EXPECT_EQ(Dream().pad(), 151643);
  EXPECT_EQ(Dream().mask(), 151666);
  EXPECT_EQ(Dream().end_of_turn(), 151645);
  EXPECT_TRUE(Dream().IsControl(151644));
  EXPECT_FALSE(Dream().IsControl(151657));  // <tool_call> is added, but text
}

TEST(Tokenizer, SpecialTokensTypedInPlainTextStayText) {
  const std::string text = "a<|endoftext|><|eot_id|><|mdm_mask|>";
  for (const TokenId id : Mini().Encode(text)) EXPECT_FALSE(Mini().IsControl(id));
  EXPECT_EQ(Mini().Decode(Mini().Encode(text)), text);
}

TEST(Tokenizer, RecognisesSpecialTokensOnlyWhenAsked) {
  EXPECT_EQ(Mini().EncodeWithSpecial("a<|endoftext|>b<|eot_id|>"), (Ids{97, 506, 98, 510}));
  EXPECT_EQ(Mini().EncodeWithSpecial("<|endoftext|"), Mini().Encode("<|endoftext|"));
  EXPECT_EQ(Mini().EncodeWithSpecial(""), Ids());
}

TEST(Tokenizer, MaskIsNeverMadeFromText) {
  EXPECT_EQ(Mini().EncodeWithSpecial("x<|mdm_mask|>y"), Mini().Encode("x<|mdm_mask|>y"));
  const Ids ids = Mini().EncodeWithSpecial("<|eot_id|><|mdm_mask|><|eot_id|>");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 511), 0);
  EXPECT_EQ(ids.front(), 510);
  EXPECT_EQ(ids.back(), 510);
  EXPECT_EQ(Dream().EncodeWithSpecial("<|mask|>"), Dream().Encode("<|mask|>"));
}

TEST(Tokenizer, TokenBytesAreTextOrLiteralContent) {
  EXPECT_EQ(Mini().TokenBytes(32), " ");
  EXPECT_EQ(Mini().TokenBytes(10), "\n");
  EXPECT_EQ(Mini().TokenBytes(506), "<|endoftext|>");
  EXPECT_EQ(Mini().TokenBytes(-1), "");
  EXPECT_EQ(Mini().TokenBytes(512), "");
  EXPECT_EQ(Mini().TokenBytes(INT32_MAX), "");
  EXPECT_EQ(Mini().TokenBytes(INT32_MIN), "");
  EXPECT_FALSE(Mini().IsControl(-1));
}

TEST(Tokenizer, FindsTokensByText) {
  EXPECT_EQ(Mini().Find("<|eot_id|>"), 510);
  EXPECT_EQ(Mini().Find(" "), 32);
  EXPECT_EQ(Mini().Find("no such token"), std::nullopt);
  EXPECT_EQ(Mini().Find(""), std::nullopt);
}

TEST(Tokenizer, DecodeDropsControlTokensAndRepairsUtf8) {
  EXPECT_EQ(Mini().Decode({104, 506, 105, 510}), "hi");
  const Ids smile = Mini().Encode("\u263A");
  ASSERT_EQ(smile.size(), 3u);
  EXPECT_EQ(Mini().Decode({smile[0], smile[1]}), "\uFFFD");
  EXPECT_EQ(Mini().Decode({smile[0], 506, smile[1], smile[2]}), "\u263A");
  EXPECT_EQ(Mini().Decode({-5, 100000, 97}), "a");
}

TEST(Tokenizer, ReplacesInvalidUtf8) {
  EXPECT_EQ(Mini().Encode("a\xFF\xC3z"), Mini().Encode("a\uFFFD\uFFFDz"));
  EXPECT_EQ(Mini().Encode(std::string_view("\0\xED\xA0\x80", 4)),
            Mini().Encode(std::string("\0\uFFFD\uFFFD\uFFFD", 10)));
}

TEST(Tokenizer, LongInputWithoutBreakTakesLinearTime) {
  // A quadratic step anywhere would make a million characters take hours.
  const auto repeated = [](const std::string& unit) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    return text;
  };
  for (const std::string unit : {"a", " ", "\n", "\r\n ", "!", "1", "th", "\u4E00", "\u0301\u0316",
                                 "e\u0301", "\u1112", "'", "<", "<|endoftext|", "\xFF"}) {
    const std::string text = repeated(unit);
    const Ids ids = Mini().EncodeWithSpecial(text);
    EXPECT_EQ(Mini().Decode(ids), ToNfc(ToValidUtf8(text))) << unit;
  }
}

TEST(Tokenizer, LongWordMergesLikeShortOnes) {
  // The same merges, found by scanning (short words) and by a heap (long ones).
  const std::string word = "thestruseTrust";
  Ids expected;
  std::string text;
  for (int k = 0; k < 20; ++k) {
    // No merge of this vocabulary makes or crosses the pair z, q.
    const Ids ids = Mini().Encode("z" + word + "q");
    expected.insert(expected.end(), ids.begin(), ids.end());
    text += "z" + word + "q";
  }
  ASSERT_LT(expected.size(), text.size());
  EXPECT_EQ(Mini().Encode(text), expected);
}

TEST(Tokenizer, GgufRoundTripEncodesIdentically) {
  const Tokenizer::GgufForm form = Mini().ToGguf(520);
  EXPECT_EQ(form.tokens.size(), 520u);
  EXPECT_EQ(form.tokens[519], "[PAD519]");
  EXPECT_EQ(form.types[519], 5);
  EXPECT_EQ(form.types[506], 3);
  EXPECT_EQ(form.types[97], 1);
  EXPECT_EQ(form.pre, "qwen2");
  const Tokenizer read = GgufTokenizer(form, {{"bos_token_id", 507},
                                              {"eos_token_id", 506},
                                              {"padding_token_id", 506},
                                              {"mask_token_id", 511}})
                             .Load();
  EXPECT_EQ(read.vocab_size(), Mini().vocab_size());
  EXPECT_EQ(read.bos(), 507);
  EXPECT_EQ(read.eos(), 506);
  EXPECT_EQ(read.pad(), 506);
  EXPECT_EQ(read.mask(), 511);
  EXPECT_EQ(read.end_of_turn(), 510);
  EXPECT_EQ(read.chat_template(), Mini().chat_template());
  EXPECT_EQ(read.TokenBytes(515), "");
  ExpectVectors(read, VectorsOf("mini"));
  for (TokenId id = 0; id < 512; ++id) {
    EXPECT_EQ(read.TokenBytes(id), Mini().TokenBytes(id));
    EXPECT_EQ(read.IsControl(id), Mini().IsControl(id));
  }
  const std::string text = "x<|eot_id|>y<|mdm_mask|>[PAD515]";
  EXPECT_EQ(read.EncodeWithSpecial(text), Mini().EncodeWithSpecial(text));
}

TEST(Tokenizer, GgufRoundTripOfDreamEncodesIdentically) {
  const Tokenizer read = GgufTokenizer(Dream().ToGguf(152064), {{"mask_token_id", 151666}}).Load();
  EXPECT_EQ(read.vocab_size(), Dream().vocab_size());
  EXPECT_FALSE(read.IsControl(151657));
  ExpectVectors(read, VectorsOf("dream"));
}

TEST(Tokenizer, LladaGgufHasNoNormalizerAndItsMaskIsFoundByText) {
  Tokenizer::GgufForm form = Mini().ToGguf(512);
  form.pre = "bailingmoe";
  const Tokenizer tokenizer = GgufTokenizer(form).Load();
  EXPECT_EQ(tokenizer.mask(), 511);
  EXPECT_EQ(tokenizer.end_of_turn(), 510);
  EXPECT_EQ(tokenizer.bos(), std::nullopt);
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode("e\u0301")), "e\u0301");
  EXPECT_EQ(Mini().Decode(Mini().Encode("e\u0301")), "\u00E9");
  EXPECT_EQ(tokenizer.ToGguf(512).pre, "bailingmoe");
}

TEST(Tokenizer, MaskIsAControlTokenWhateverTheFileSays) {
  for (const int type : {1, 3, 4}) {
    Tokenizer::GgufForm form = Mini().ToGguf(512);
    form.types[511] = type;
    const Tokenizer tokenizer = GgufTokenizer(form, {{"mask_token_id", 511}}).Load();
    EXPECT_TRUE(tokenizer.IsControl(511));
    EXPECT_EQ(tokenizer.EncodeWithSpecial("<|mdm_mask|>"), Mini().Encode("<|mdm_mask|>"));
    EXPECT_EQ(tokenizer.Decode({97, 511}), "a");
  }
}

TEST(Tokenizer, Llama3GgufTakesDigitsByThreesAndWholeWordsFirst) {
  Tokenizer::GgufForm form = Mini().ToGguf(514);
  form.pre = "llama-bpe";
  form.tokens[512] = "123";
  form.types[512] = 1;
  form.tokens[513] = "zqzq";
  form.types[513] = 1;
  const Tokenizer tokenizer = GgufTokenizer(form).Load();
  EXPECT_EQ(tokenizer.Encode("1231234"), (Ids{512, 512, 52}));
  EXPECT_EQ(tokenizer.Encode("zqzq"), Ids{513});
  EXPECT_EQ(tokenizer.Encode("zqzqz"), (Ids{122, 113, 122, 113, 122}));
}

TEST(Tokenizer, RefusesUnknownGgufTokenizersByName) {
  Tokenizer::GgufForm form = Mini().ToGguf(512);
  form.pre = "default";
  EXPECT_NE(ErrorOf([&] { GgufTokenizer(form).Load(); }).find("'default'"), std::string::npos);
  form.pre = "gpt-4o";
  EXPECT_NE(ErrorOf([&] { GgufTokenizer(form).Load(); }).find("'gpt-4o'"), std::string::npos);
}

TEST(Tokenizer, RefusesDamagedGgufTokenizers) {
  const Tokenizer::GgufForm good = Mini().ToGguf(512);
  const auto error_of = [&](const std::function<void(Tokenizer::GgufForm*)>& damage) {
    Tokenizer::GgufForm form = good;
    damage(&form);
    return ErrorOf([&] { GgufTokenizer(form).Load(); });
  };
  EXPECT_NE(error_of([](auto* form) { form->types.pop_back(); }).find("511 token types"),
            std::string::npos);
  EXPECT_NE(error_of([](auto* form) { form->types[3] = 77; }).find("unknown type 77"),
            std::string::npos);
  EXPECT_NE(error_of([](auto* form) { form->merges[5] = "nosuch token"; }).find("'nosuch'"),
            std::string::npos);
  EXPECT_NE(error_of([](auto* form) { form->merges[5] = "nospace"; }).find("'nospace'"),
            std::string::npos);
  EXPECT_NE(error_of([](auto* form) { form->tokens[98] = form->tokens[97]; }).find("twice"),
            std::string::npos);
  EXPECT_NE(error_of([](auto* form) { form->tokens[507] = "<|eot_id|>"; }).find("two ids"),
            std::string::npos);
  EXPECT_NE(error_of([](auto* form) { form->types[97] = 5; }).find("byte 0x61"), std::string::npos);
  for (const char* key : {"bos", "eos", "padding", "mask"}) {
    const GgufTokenizer file(good, {{std::string(key) + "_token_id", 4000000000u}});
    EXPECT_NE(ErrorOf([&] { file.Load(); }).find("4000000000"), std::string::npos) << key;
  }
}

TEST(Tokenizer, ToGgufRefusesTooFewRows) {
  EXPECT_NE(ErrorOf([] { Mini().ToGguf(511); }).find("511"), std::string::npos);
}

// The mini tokenizer.json after `edit`, loaded.
std::string ErrorAfter(const std::function<void(Json*)>& edit) {
  Json document = Json::parse(ReadFile(kMiniFolder / "tokenizer.json"));
  edit(&document);
  return ErrorOf([&] { Tokenizer::FromJson(document.dump(), "t.json"); });
}

TEST(Tokenizer, ReadsMergesAsStringsOrPairs) {
  Json document = Json::parse(ReadFile(kMiniFolder / "tokenizer.json"));
  Json& merges = document["model"]["merges"];
  for (size_t k = 0; k < merges.size(); k += 2) {
    const std::string merge = merges[k];
    const size_t space = merge.find(' ');
    merges[k] = {merge.substr(0, space), merge.substr(space + 1)};
  }
  ExpectVectors(Tokenizer::FromJson(document.dump(), "t.json"), VectorsOf("mini"));
}

TEST(Tokenizer, ReadsNormalizersInSequence) {
  Json document = Json::parse(ReadFile(kMiniFolder / "tokenizer.json"));
  document["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  const Tokenizer nfc = Tokenizer::FromJson(document.dump(), "t.json");
  EXPECT_EQ(nfc.Decode(nfc.Encode("e\u0301")), "\u00E9");
  document["normalizer"] = nullptr;
  const Tokenizer plain = Tokenizer::FromJson(document.dump(), "t.json");
  EXPECT_EQ(plain.Decode(plain.Encode("e\u0301")), "e\u0301");
}

TEST(Tokenizer, AcceptsEveryKnownSplitPattern) {
  for (const char* pattern : {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}|)"
                              R"( ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
                              R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                              R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}) {
    EXPECT_EQ(ErrorAfter([&](Json* document) {
                (*document)["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern;
              }),
              "no error");
  }
}

TEST(Tokenizer, RefusesWhatItDoesNotImplementByName) {
  const std::pair<const char*, std::function<void(Json*)>> cases[] = {
      {R"(\\w+|\\s)",
       [](Json* d) {
         (*d)["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = R"(\w+|\s)";
       }},
      {"'Metaspace'",
       [](Json* d) {
         (*d)["pre_tokenizer"] = {{"type", "Metaspace"}};
       }},
      {"'none'", [](Json* d) { (*d)["pre_tokenizer"] = nullptr; }},
      {"add_prefix_space",
       [](Json* d) { (*d)["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; }},
      {"use_regex", [](Json* d) { (*d)["pre_tokenizer"]["pretokenizers"][1].erase("use_regex"); }},
      {"Isolated", [](Json* d) { (*d)["pre_tokenizer"]["pretokenizers"][0]["invert"] = true; }},
      {"'Lowercase'",
       [](Json* d) {
         (*d)["normalizer"] = {{"type", "Lowercase"}};
       }},
      {"'WordPiece'", [](Json* d) { (*d)["model"]["type"] = "WordPiece"; }},
      {"dropout", [](Json* d) { (*d)["model"]["dropout"] = 0.1; }},
      {"byte_fallback", [](Json* d) { (*d)["model"]["byte_fallback"] = true; }},
      {"end_of_word_suffix", [](Json* d) { (*d)["model"]["end_of_word_suffix"] = "</w>"; }},
      {"'Metaspace'",
       [](Json* d) {
         (*d)["decoder"] = {{"type", "Metaspace"}};
       }},
      {"lstrip", [](Json* d) { (*d)["added_tokens"][0]["lstrip"] = true; }},
  };
  for (const auto& [expected, edit] : cases) {
    const std::string message = ErrorAfter(edit);
    EXPECT_NE(message.find(expected), std::string::npos) << message;
    EXPECT_NE(message.find("implemented"), std::string::npos) << message;
  }
}

TEST(Tokenizer, RefusesDamagedVocabularies) {
  const std::pair<const char*, std::function<void(Json*)>> cases[] = {
      {"'nosuch'", [](Json* d) { (*d)["model"]["merges"][7] = "nosuch a"; }},
      {"'zq'", [](Json* d) { (*d)["model"]["merges"][7] = "z q"; }},
      {"merge 7", [](Json* d) { (*d)["model"]["merges"][7] = {"a"}; }},
      {"merge 7",
       [](Json* d) {
         (*d)["model"]["merges"][7] = {"a", "b", "c"};
       }},
      {"merge 7",
       [](Json* d) {
         (*d)["model"]["merges"][7] = {"a", {"b"}};
       }},
      {"merge 7", [](Json* d) { (*d)["model"]["merges"][7] = 5; }},
      {"merge 7", [](Json* d) { (*d)["model"]["merges"][7] = "a b c"; }},
      {"id 97 to both", [](Json* d) { (*d)["model"]["vocab"]["b"] = 97; }},
      {"id -1", [](Json* d) { (*d)["model"]["vocab"]["b"] = -1; }},
      {"1099511627776", [](Json* d) { (*d)["model"]["vocab"]["b"] = int64_t{1} << 40; }},
      {"ids must lie", [](Json* d) { (*d)["model"]["vocab"]["b"] = UINT64_MAX; }},
      {"not an integer", [](Json* d) { (*d)["model"]["vocab"]["b"] = 1.5; }},
      {"not an integer",
       [](Json* d) {
         (*d)["model"]["vocab"]["b"] = {{"x", 1}};
       }},
      {"byte 0x62", [](Json* d) { (*d)["model"]["vocab"].erase("b"); }},
      {"no model", [](Json* d) { d->erase("model"); }},
      {"byte 0x00", [](Json* d) { (*d)["model"] = 5; }},
      {"-7", [](Json* d) { (*d)["added_tokens"][0]["id"] = -7; }},
      {"impossible id", [](Json* d) { (*d)["added_tokens"][0]["id"] = int64_t{1} << 40; }},
      {"not an integer", [](Json* d) { (*d)["added_tokens"][0]["id"] = "x"; }},
      {"no id", [](Json* d) { (*d)["added_tokens"][0].erase("id"); }},
      {"no content", [](Json* d) { (*d)["added_tokens"][0]["content"] = 3; }},
      {"no text", [](Json* d) { (*d)["added_tokens"][0]["content"] = ""; }},
      {"to both", [](Json* d) { (*d)["added_tokens"][0]["id"] = 97; }},
      {"two ids", [](Json* d) { (*d)["added_tokens"][0]["content"] = "<|eot_id|>"; }},
      {"the id 506, but 97", [](Json* d) { (*d)["added_tokens"][0]["content"] = "a"; }},
      {"added_tokens", [](Json* d) { (*d)["added_tokens"] = 5; }},
  };
  for (const auto& [expected, edit] : cases) {
    const std::string message = ErrorAfter(edit);
    EXPECT_NE(message.find(expected), std::string::npos) << expected << ": " << message;
  }
  EXPECT_NE(ErrorAfter([](Json* d) { *d = Json::array(); }).find("not a JSON object"),
            std::string::npos);
}

TEST(Tokenizer, AddedTokensMayRepeatVocabularyEntries) {
  Json document = Json::parse(ReadFile(kMiniFolder / "tokenizer.json"));
  for (const Json& token : document["added_tokens"]) {
    document["model"]["vocab"][token["content"].get<std::string>()] = token["id"];
  }
  document["model"]["ignore_merges"] = true;  // even then plain text makes no control token
  const Tokenizer tokenizer = Tokenizer::FromJson(document.dump(), "t.json");
  for (const TokenId id : tokenizer.Encode("<|endoftext|>")) EXPECT_FALSE(tokenizer.IsControl(id));
  EXPECT_EQ(tokenizer.EncodeWithSpecial("<|endoftext|>"), Ids{506});
}

TEST(Tokenizer, EveryCutOrChangedByteGivesAnErrorOrATokenizer) {
  const std::string good = ReadFile(kMiniFolder / "tokenizer.json");
  for (size_t length = 0; length < good.size(); length += 7) {
    EXPECT_NE(ErrorOf([&] { Tokenizer::FromJson(good.substr(0, length), "t.json"); }), "no error");
  }
  for (size_t pos = 0; pos < good.size(); pos += 5) {
    std::string changed = good;
    changed[pos] = static_cast<char>(changed[pos] ^ (1 << pos % 8));
    ErrorOf([&] {
      const Tokenizer tokenizer = Tokenizer::FromJson(changed, "t.json");
      tokenizer.Decode(tokenizer.EncodeWithSpecial("Hello <|eot_id|> world"));
    });
  }
}

TEST(Tokenizer, DeepNestingIsRefused) {
  for (const std::string open : {"[", "{\"a\":", "{\"model\":{\"merges\":[[["}) {
    std::string text;
    while (text.size() < 1000000) text += open;
    EXPECT_NE(ErrorOf([&] { Tokenizer::FromJson(text, "t.json"); }), "no error");
  }
}

TEST(Tokenizer, FolderWithoutTokenizerSaysSo) {
  const TempFolder folder;
  const std::string message = ErrorOf([&] { Tokenizer::FromFolder(folder.path()); });
  EXPECT_NE(message.find("tokenizer.json"), std::string::npos) << message;
  EXPECT_NE(message.find("merges.txt"), std::string::npos) << message;
  EXPECT_NE(ErrorOf([] { Tokenizer::FromFolder("/nonexistent/folder"); }), "no error");
}

TEST(Tokenizer, ReadsVocabAndMergesFiles) {
  const Json document = Json::parse(ReadFile(kMiniFolder / "tokenizer.json"));
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : document["model"]["merges"]) merges += merge.get<std::string>() + "\r\n";
  Json config = {{"tokenizer_class", "DreamTokenizer"}, {"eos_token", {{"content", "<|eot_id|>"}}}};
  Json added;
  for (const Json& token : document["added_tokens"]) {
    config["added_tokens_decoder"][token["id"].dump()] = token;
    added[token["content"].get<std::string>()] = token["id"];
  }
  added["<extra>"] = 600;
  const TempFolder folder;
  folder.Write("vocab.json", document["model"]["vocab"].dump());
  folder.Write("merges.txt", merges);
  folder.Write("added_tokens.json", added.dump());
  folder.Write("tokenizer_config.json", config.dump());
  folder.Write("special_tokens_map.json", R"({"pad_token": "<|endoftext|>"})");
  folder.Write("config.json",
               R"({"mask_token_id": 511, "bos_token_id": 507, "eos_token_id": [506, 510]})");
  folder.Write("chat_template.jinja", "hello");
  const Tokenizer tokenizer = Tokenizer::FromFolder(folder.path());
  ExpectVectors(tokenizer, VectorsOf("mini"));
  EXPECT_EQ(tokenizer.eos(), 510);
  EXPECT_EQ(tokenizer.pad(), 506);
  EXPECT_EQ(tokenizer.bos(), 507);
  EXPECT_EQ(tokenizer.mask(), 511);
  EXPECT_EQ(tokenizer.chat_template(), "hello");
  EXPECT_EQ(tokenizer.EncodeWithSpecial("<extra>"), Ids{600});
  EXPECT_EQ(tokenizer.vocab_size(), 601u);
  EXPECT_TRUE(tokenizer.IsControl(506));
  EXPECT_FALSE(tokenizer.IsControl(600));

  const auto error_with = [&](const std::string& name, const std::string& text) {
    const std::string good = ReadFile(folder.path() / name);
    folder.Write(name, text);
    const std::string message = ErrorOf([&] { Tokenizer::FromFolder(folder.path()); });
    folder.Write(name, good);
    return message;
  };
  EXPECT_NE(error_with("vocab.json", "[]").find("vocab.json"), std::string::npos);
  EXPECT_NE(error_with("vocab.json", "").find("vocab.json"), std::string::npos);
  EXPECT_NE(error_with("merges.txt", "a\n").find("merges.txt"), std::string::npos);
  EXPECT_NE(error_with("config.json", "{\"mask_token_id\": 77777}").find("77777"),
            std::string::npos);
  EXPECT_NE(error_with("config.json", "{\"mask_token_id\": 1.5}").find("integer"),
            std::string::npos);
  EXPECT_NE(error_with("config.json", "5").find("config.json"), std::string::npos);
  EXPECT_NE(error_with("special_tokens_map.json", R"({"pad_token": "<none>"})").find("'<none>'"),
            std::string::npos);
  EXPECT_NE(error_with("added_tokens.json", R"({"<|eot_id|>": 3})").find("two ids"),
            std::string::npos);
  EXPECT_NE(error_with("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})")
                .find("'GPT2Tokenizer'"),
            std::string::npos);
  EXPECT_NE(error_with("tokenizer_config.json",
                       R"({"tokenizer_class": "DreamTokenizer", "mask_token": "<|eot_id|>"})")
                .find("mask"),
            std::string::npos);
}

TEST(Tokenizer, LladaFolderWithoutTokenizerJsonIsRefused) {
  const fs::path folder = kData / "LLaDA-8B-Instruct";
  EXPECT_NE(ErrorOf([&] { Tokenizer::FromFolder(folder); }).find("tokenizer.json"),
            std::string::npos);
}

TEST(Tokenizer, DescribesItselfOnOneLine) {
  const std::string line = Mini().Describe();
  EXPECT_NE(line.find("512 tokens"), std::string::npos) << line;
  EXPECT_NE(line.find("'<|mdm_mask|>'"), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos) << line;
}

}  // namespace
}  // namespace spa::tokenizer_test
