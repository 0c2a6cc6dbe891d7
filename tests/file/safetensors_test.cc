#include "file/safetensors.h"

#include <gtest/gtest.h>

#include "kernels/block_codec.h"
#include "tests/file/test_files.h"

namespace spa::safetensors_test {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kHeader =
    R"({"__metadata__":{"format":"pt","nested":[{"x":[1]}]},)"
    R"("b":{"dtype":"F32","shape":[2],"data_offsets":[6,14]},)"
    R"("a.weight":{"dtype":"BF16","shape":[3,1],"data_offsets":[0,6]}})";
constexpr std::string_view kData = "\x80\x3f\x00\x40\x40\xc0\x00\x00\x80\x3f\x00\x00\x00\xc1"sv;

std::string SmallFile() { return Safetensors(std::string(kHeader), kData); }

// Parses a copy of exactly the file's size, so that a sanitizer sees reads past its end.
std::vector<Tensor> Parse(const std::string& file) {
  static std::vector<std::byte> bytes;
  bytes = std::vector<std::byte>(AsBytes(file).begin(), AsBytes(file).end());
  return ParseSafetensors(bytes, "m.safetensors");
}

void ExpectError(const std::string& file, std::string_view part) {
  const std::string message = ErrorOf([&] { Parse(file); });
  ExpectClearMessage(message, "m.safetensors");
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

void ExpectHeaderError(const std::string& header, std::string_view part) {
  ExpectError(Safetensors(header, "12345678"), part);
}

std::vector<float> Values(const Tensor& tensor) {
  std::vector<float> values(tensor.num_elements());
  DecodeRow(tensor.dtype, tensor.bytes.data(), values.size(), values.data());
  return values;
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const std::vector<Tensor> tensors = Parse(SmallFile());
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "a.weight");
  EXPECT_EQ(tensors[0].dtype, DType::kBF16);
  EXPECT_EQ(tensors[0].shape, (std::vector<uint64_t>{3, 1}));
  EXPECT_EQ(Values(tensors[0]), (std::vector<float>{1.0f, 2.0f, -3.0f}));
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(Values(tensors[1]), (std::vector<float>{1.0f, -8.0f}));
}

TEST(Safetensors, AcceptsScalarsEscapesAndUnknownFields) {
  const std::vector<Tensor> tensors =
      Parse(Safetensors(R"({"\u0061":{"dtype":"F32","shape":[],"extra":{"y":[[1]]},"more":null,)"
                        R"("data_offsets":[0,4]}})",
                        "\0\0\0\0"sv));
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].num_elements(), 1u);
}

TEST(Safetensors, RefusesBadLengths) {
  ExpectError("", "only 0 bytes");
  ExpectError("1234567", "only 7 bytes");
  ExpectError(Raw<uint64_t>(1ULL << 60) + "{}", "claims a header of 1152921504606846976 bytes");
  ExpectError(Raw<uint64_t>(100) + "{}", "claims a header of 100 bytes");
  ExpectError(Raw<uint64_t>(0), "not valid JSON");
  ExpectError("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer");
}

TEST(Safetensors, RefusesBadHeaders) {
  ExpectHeaderError("{", "not valid JSON");
  ExpectHeaderError("{} x", "not valid JSON");
  ExpectHeaderError("{\"\xff\":{}}", "not valid JSON");
  ExpectHeaderError("[]", "not an object of tensors");
  ExpectHeaderError("7", "not an object of tensors");
  ExpectHeaderError(R"({"a":7})", "'a' is malformed");
  ExpectHeaderError(R"({"a":[]})", "'a' is malformed");
  ExpectHeaderError(R"({"a":{}})", "'a' needs a dtype");
  ExpectHeaderError(R"({"a":{"dtype":7}})", "'a' is malformed");
  ExpectHeaderError(R"({"a":{"dtype":{}}})", "'a' is malformed");
  ExpectHeaderError(R"({"a":{"shape":{}}})", "'a' is malformed");
  ExpectHeaderError(R"({"a":{"shape":3}})", "'a' is malformed");
  ExpectHeaderError(R"({"a":{"shape":[[1]]}})", "'a' is malformed");
  ExpectHeaderError(R"({"a":{"shape":[-1]}})", "'a' is malformed");
  ExpectHeaderError(R"({"a":{"shape":[1.5]}})", "'a' is malformed");
  ExpectHeaderError(R"({"a":{"shape":[1],"shape":[1]}})", "'a' is malformed");
  ExpectHeaderError(std::string(5000, '['), "m.safetensors");
  ExpectHeaderError(R"({"__metadata__":)" + std::string(5000, '['), "nested deeper than");
}

TEST(Safetensors, RefusesBadTensors) {
  const auto entry = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"t":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", dtype, shape,
                       offsets);
  };
  ExpectHeaderError(entry("I64", "[1]", "[0,8]"), "'t' has the dtype 'I64'");
  ExpectHeaderError(entry("F8_E4M3", "[8]", "[0,8]"), "'F8_E4M3'");
  ExpectHeaderError(entry("Q8_0", "[8]", "[0,8]"), "'Q8_0'");
  ExpectHeaderError(entry("F32", "[1,1,1,1,2]", "[0,8]"), "5 dimensions");
  ExpectHeaderError(entry("F32", "[0]", "[0,0]"), "no elements");
  ExpectHeaderError(entry("F32", "[2]", "[0]"), "two data_offsets");
  ExpectHeaderError(entry("F32", "[2]", "[0,8,8]"), "two data_offsets");
  ExpectHeaderError(entry("F32", "[2]", "[8,0]"), "cut short");
  ExpectHeaderError(entry("F32", "[3]", "[0,12]"), "cut short");
  ExpectHeaderError(entry("F32", "[1]", "[0,8]"), "does not match its shape");
  ExpectHeaderError(entry("F32", "[4611686018427387906]", "[0,8]"), "does not match its shape");
  ExpectHeaderError(entry("F32", "[1]", "[4,8]"), "expected 0 (no gaps");
  ExpectHeaderError(entry("F32", "[1]", "[0,4]"), "8 bytes of data, but the tensors take 4");
  ExpectHeaderError(R"({"a":{"dtype":"F16","shape":[3],"data_offsets":[0,6]},)"
                    R"("b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}})",
                    "no gaps, no overlap");
}

TEST(Safetensors, AnyDamageGivesAClearErrorOrAValidLoad) {
  size_t num_errors = 0;
  size_t num_cases = 0;
  const std::string good = SmallFile();
  ForEachDamage(good, [&](const std::string& damaged) {
    ++num_cases;
    try {
      for (const Tensor& tensor : Parse(damaged)) Values(tensor);
    } catch (const Error& error) {
      ++num_errors;
      ExpectClearMessage(error.what(), "m.safetensors");
    }
  });
  EXPECT_GT(num_errors, num_cases / 2);
  for (size_t size = 0; size < good.size(); ++size) ErrorOf([&] { Parse(good.substr(0, size)); });
}

// A folder with two shards and their index.
class SafetensorsFolderTest : public testing::Test {
 protected:
  SafetensorsFolderTest() {
    WriteFile(folder() / "x.safetensors", SmallFile());
    WriteFile(folder() / "y.safetensors",
              Safetensors(R"({"c":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", "\0<"sv));
    WriteIndex(kIndex);
  }

  const std::filesystem::path& folder() const { return dir_.path(); }
  void WriteIndex(std::string_view text) {
    WriteFile(folder() / "model.safetensors.index.json", text);
  }
  void ExpectLoadError(std::string_view part) {
    const std::string message = ErrorOf([&] { SafetensorsFolder f(folder()); });
    ExpectClearMessage(message, folder().string());
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }

  static constexpr std::string_view kIndex =
      R"({"metadata":{"total_size":16},"weight_map":{"a.weight":"x.safetensors",)"
      R"("b":"x.safetensors","c":"y.safetensors"}})";
  TempDir dir_;
};

TEST_F(SafetensorsFolderTest, FindsTheTensorsOfAllShards) {
  const SafetensorsFolder weights(folder());
  EXPECT_EQ(weights.tensors().size(), 3u);
  ASSERT_NE(weights.Find("c"), nullptr);
  EXPECT_EQ(Values(*weights.Find("c")), (std::vector<float>{1.0f}));
  for (const Tensor& tensor : weights.tensors()) weights.Release(tensor);
  EXPECT_EQ(Values(*weights.Find("a.weight")), (std::vector<float>{1.0f, 2.0f, -3.0f}));
}

TEST_F(SafetensorsFolderTest, ASingleFileNeedsNoIndex) {
  std::filesystem::remove(folder() / "model.safetensors.index.json");
  ExpectLoadError("has no weights");
  WriteFile(folder() / "model.safetensors", SmallFile());
  EXPECT_EQ(SafetensorsFolder(folder()).tensors().size(), 2u);
}

TEST_F(SafetensorsFolderTest, RefusesWhatIsNotAFolder) {
  const std::string file = (folder() / "x.safetensors").string();
  EXPECT_EQ(ErrorOf([&] { SafetensorsFolder f(file); }), file + " is not a folder");
  EXPECT_EQ(ErrorOf([] { SafetensorsFolder f("/nonexistent"); }), "/nonexistent is not a folder");
}

TEST_F(SafetensorsFolderTest, RefusesAMissingOrEmptyShard) {
  WriteFile(folder() / "y.safetensors", "");
  ExpectLoadError("only 0 bytes");
  std::filesystem::remove(folder() / "y.safetensors");
  ExpectLoadError("No such file");
  std::filesystem::create_directory(folder() / "y.safetensors");
  ExpectLoadError("is not a file");
}

TEST_F(SafetensorsFolderTest, RefusesShardNamesThatLeaveTheFolder) {
  for (const std::string_view shard : {"../x.safetensors", "/etc/passwd", "..", ".", "", "a\\\\b",
                                       "sub/x.safetensors", "x\\u0000.safetensors"}) {
    WriteIndex(fmt::format(R"({{"weight_map":{{"c":"{}"}}}})", shard));
    ExpectLoadError("not a plain file name");
  }
}

TEST_F(SafetensorsFolderTest, RefusesAnIndexThatDoesNotFit) {
  WriteIndex(R"({"weight_map":{"c":"x.safetensors"}})");
  ExpectLoadError("'c' is missing");
  WriteIndex(R"({"weight_map":{}})");
  ExpectLoadError("no 'weight_map'");
  WriteIndex(R"({})");
  ExpectLoadError("no 'weight_map'");
  WriteIndex(R"([])");
  ExpectLoadError("expected an object");
  WriteIndex(R"({"weight_map":[]})");
  ExpectLoadError("expected an object");
  WriteIndex(R"({"weight_map":{"c":3}})");
  ExpectLoadError("expected an object");
  WriteIndex("");
  ExpectLoadError("not valid JSON");
}

TEST_F(SafetensorsFolderTest, RefusesANameThatAppearsTwice) {
  WriteFile(folder() / "y.safetensors",
            Safetensors(R"({"b":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", "\0<"sv));
  WriteIndex(R"({"weight_map":{"a.weight":"x.safetensors","b":"y.safetensors"}})");
  ExpectLoadError("'b' twice");
  WriteFile(folder() / "model.safetensors",
            Safetensors(R"({"b":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                        R"("b":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}})",
                        "1234"));
  ExpectLoadError("'b' twice");
}

// Loads the folder with `file` damaged in one way per byte; the parsers see all ways in memory.
void LoadDamaged(const std::filesystem::path& folder, const std::string& file) {
  const auto load = [&](const std::string& damaged) {
    WriteFile(folder / file, damaged);
    try {
      const SafetensorsFolder weights(folder);
      for (const Tensor& tensor : weights.tensors()) Values(tensor);
    } catch (const Error& error) {
      ExpectClearMessage(error.what(), folder.string());
    }
  };
  ForEachDamage(ReadFile(folder / file), load, {0x05});
}

TEST_F(SafetensorsFolderTest, AnyDamageToTheIndexGivesAClearErrorOrAValidLoad) {
  LoadDamaged(folder(), "model.safetensors.index.json");
  ForEachDamage(std::string(kIndex), [](const std::string& damaged) {
    try {
      ParseSafetensorsIndex(AsBytes(damaged), "index.json");
    } catch (const Error& error) {
      ExpectClearMessage(error.what(), "index.json");
    }
  });
}

TEST_F(SafetensorsFolderTest, AnyDamageToAShardGivesAClearErrorOrAValidLoad) {
  LoadDamaged(folder(), "y.safetensors");
}

}  // namespace
}  // namespace spa::safetensors_test
