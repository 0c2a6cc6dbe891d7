#include "file/gguf_writer.h"

#include <gtest/gtest.h>

#include "kernels/block_codec.h"
#include "tests/file/test_files.h"

namespace spa {
namespace {

std::vector<std::byte> Pattern(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(seed + 13 * i);
  return bytes;
}

TEST(GgufWriter, WhatIsWrittenIsRead) {
  const TempDir dir;
  const std::filesystem::path path = dir.path() / "model.gguf";
  const std::vector<std::string> tokens = {"<s>", "", "caf\xc3\xa9"};
  const std::vector<int32_t> types = {3, -1, 1};
  const std::vector<std::byte> weight = Pattern(3 * 2 * 34, 1);
  const std::vector<std::byte> norm = Pattern(5 * 4, 2);
  {
    GgufWriter writer(path);
    writer.AddString("general.architecture", "llada");
    writer.AddUint32("llada.block_count", 32);
    writer.AddFloat32("llada.rope.freq_base", 500000.0f);
    writer.AddBool("llada.attention.causal", false);
    writer.AddStrings("tokenizer.ggml.tokens", tokens);
    writer.AddInt32s("tokenizer.ggml.token_type", types);
    writer.DeclareTensor("weight", DType::kQ8_0, {3, 64});
    writer.DeclareTensor("norm", DType::kF32, {5});
    writer.BeginData();
    writer.WriteData(std::span(weight).first(100));
    writer.WriteData(std::span(weight).subspan(100));
    writer.WriteData(norm);
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.Finish();
  }
  const GgufFile file(path);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(*file.FindString("general.architecture"), "llada");
  EXPECT_EQ(file.FindUint("llada.block_count"), 32u);
  EXPECT_EQ(file.FindFloat("llada.rope.freq_base"), 500000.0);
  EXPECT_EQ(file.FindBool("llada.attention.causal"), false);
  EXPECT_EQ(*file.FindStrings("tokenizer.ggml.tokens"), tokens);
  EXPECT_EQ(std::get<std::vector<int64_t>>(*file.FindValue("tokenizer.ggml.token_type")),
            (std::vector<int64_t>{3, -1, 1}));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].shape, (std::vector<uint64_t>{3, 64}));
  EXPECT_TRUE(std::ranges::equal(file.tensors()[0].bytes, weight));
  EXPECT_EQ(file.tensors()[1].name, "norm");
  EXPECT_TRUE(std::ranges::equal(file.tensors()[1].bytes, norm));
  EXPECT_EQ(file.file_bytes() % 32, 0u);  // the last tensor is padded too, as other readers want
}

TEST(GgufWriter, CopiesMetadataByteForByteExceptWhatIsSkipped) {
  GgufParts parts = SmallGguf();
  parts.alignment = 64;
  parts.Add("general.alignment", GgufValueType::kUint32, Raw<uint32_t>(64));
  parts.tensors.clear();
  const std::string built = parts.Build();
  const GgufFile source(AsBytes(built), "source");

  const TempDir dir;
  GgufWriter writer(dir.path() / "copy.gguf");
  writer.AddUint32("a.u32", 5);
  const std::string_view skip[] = {"a.u8", "b.str"};
  writer.CopyMetadata(source, skip);
  writer.BeginData();
  writer.Finish();

  const GgufFile copy(dir.path() / "copy.gguf");
  EXPECT_EQ(copy.FindUint("a.u32"), 5u);
  EXPECT_EQ(copy.FindValue("a.u8"), nullptr);
  EXPECT_EQ(copy.FindValue("b.str"), nullptr);
  EXPECT_EQ(copy.FindValue("general.alignment"), nullptr);
  EXPECT_EQ(copy.metadata().size(), source.metadata().size() - 3);
  const std::string bytes = ReadFile(dir.path() / "copy.gguf");
  for (size_t i = 0; i < source.metadata().size(); ++i) {
    if (copy.FindValue(source.metadata()[i].first) == nullptr) continue;
    if (source.metadata()[i].first == "a.u32") continue;
    const auto* encoded = reinterpret_cast<const char*>(source.encoded(i).data());
    EXPECT_NE(bytes.find(std::string(encoded, source.encoded(i).size())), std::string::npos);
  }
}

TEST(GgufWriter, LeavesNothingBehindWhenNotFinished) {
  const TempDir dir;
  {
    GgufWriter writer(dir.path() / "model.gguf");
    writer.DeclareTensor("weight", DType::kF32, {4});
    writer.BeginData();
    writer.WriteData(Pattern(8, 0));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(GgufWriter, RefusesTensorsThatGgufCannotHold) {
  const TempDir dir;
  GgufWriter writer(dir.path() / "model.gguf");
  const auto declare = [&](std::string name, DType dtype, std::vector<uint64_t> shape) {
    const std::string message =
        ErrorOf([&] { writer.DeclareTensor(std::move(name), dtype, std::move(shape)); });
    ExpectClearMessage(message, "model.gguf");
    return message;
  };
  declare("", DType::kF32, {1});
  declare(std::string(64, 'x'), DType::kF32, {1});
  declare("rows", DType::kQ4_K, {2, 128});
  declare("five", DType::kF32, {1, 1, 1, 1, 1});
  declare("empty", DType::kF32, {0, 4});
  writer.DeclareTensor("same", DType::kF32, {1});
  declare("same", DType::kF32, {1});
}

TEST(GgufWriter, ReportsAnUnwritablePath) {
  const std::string message = ErrorOf([] { GgufWriter writer("/nonexistent/folder/model.gguf"); });
  ExpectClearMessage(message, "/nonexistent/folder/model.gguf");
}

}  // namespace
}  // namespace spa
