#include "file/gguf.h"

#include <gtest/gtest.h>

#include "kernels/block_codec.h"
#include "tests/file/test_files.h"

namespace spa {
namespace {

using T = GgufValueType;

// A copy of exactly the file's size on the heap: a sanitizer sees any read past its end.
struct Loaded {
  explicit Loaded(const std::string& file)
      : bytes(AsBytes(file).begin(), AsBytes(file).end()), gguf(bytes, "small.gguf") {}
  std::vector<std::byte> bytes;
  GgufFile gguf;
};

std::string LoadError(const std::string& file) {
  const std::string message = ErrorOf([&] { Loaded{file}; });
  ExpectClearMessage(message, "small.gguf");
  return message;
}

void ExpectError(const std::string& file, std::string_view part) {
  const std::string message = LoadError(file);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Gguf, ReadsEveryValueType) {
  const Loaded file(SmallGguf().Build());
  const GgufFile& gguf = file.gguf;
  EXPECT_EQ(gguf.version(), 3u);
  EXPECT_EQ(gguf.metadata().size(), 17u);
  EXPECT_EQ(gguf.metadata()[1].first, "a.u8");
  EXPECT_EQ(*gguf.FindString("general.architecture"), "llada");
  EXPECT_EQ(gguf.FindUint("a.u8"), 200u);
  EXPECT_EQ(gguf.FindUint("a.u16"), 60000u);
  EXPECT_EQ(gguf.FindUint("a.u32"), 4000000000u);
  EXPECT_EQ(gguf.FindUint("a.u64"), 1ULL << 63);
  EXPECT_EQ(std::get<int64_t>(*gguf.FindValue("a.i8")), -100);
  EXPECT_EQ(std::get<int64_t>(*gguf.FindValue("a.i16")), -30000);
  EXPECT_EQ(std::get<int64_t>(*gguf.FindValue("a.i32")), -2000000000);
  EXPECT_EQ(std::get<int64_t>(*gguf.FindValue("a.i64")), -(1LL << 62));
  EXPECT_EQ(gguf.FindFloat("a.f32"), 0.5);
  EXPECT_EQ(gguf.FindFloat("a.f64"), 0.1);
  EXPECT_EQ(gguf.FindBool("a.bool"), true);
  EXPECT_EQ(std::get<std::vector<uint64_t>>(*gguf.FindValue("b.u8")),
            (std::vector<uint64_t>{1, 255}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(*gguf.FindValue("b.i32")),
            (std::vector<int64_t>{-1, 7}));
  EXPECT_EQ(std::get<std::vector<double>>(*gguf.FindValue("b.f32")), (std::vector<double>{-2.5}));
  EXPECT_EQ(std::get<std::vector<bool>>(*gguf.FindValue("b.bool")),
            (std::vector<bool>{true, false, true}));
  EXPECT_EQ(*gguf.FindStrings("b.str"), (std::vector<std::string>{"a", "", "\xff\xfe not UTF-8"}));
}

TEST(Gguf, ReversesShapesAndPointsIntoTheFile) {
  const std::string built = SmallGguf().Build();
  const Loaded file(built);
  ASSERT_EQ(file.gguf.tensors().size(), 3u);
  const Tensor* f32 = file.gguf.Find("f32.weight");
  ASSERT_NE(f32, nullptr);
  EXPECT_EQ(f32->shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(f32->rows(), 2u);
  EXPECT_EQ(f32->cols(), 3u);
  const size_t data_start = built.size() - SmallGguf().data.size();
  EXPECT_EQ(f32->bytes.data(), file.bytes.data() + data_start);
  const Tensor* q8 = file.gguf.Find("q8.weight");
  ASSERT_NE(q8, nullptr);
  EXPECT_EQ(q8->dtype, DType::kQ8_0);
  EXPECT_EQ(q8->bytes.size(), 68u);
  EXPECT_EQ(q8->bytes.data(), file.bytes.data() + data_start + 32);
  EXPECT_EQ(file.gguf.Find("absent"), nullptr);
}

TEST(Gguf, AcceptsVersion2AndAnotherAlignment) {
  GgufParts parts = SmallGguf();
  parts.version = 2;
  parts.alignment = 128;
  parts.Add("general.alignment", T::kUint32, Raw<uint32_t>(128));
  parts.tensors[1].offset = 128;
  parts.tensors[2].offset = 256;
  parts.data.resize(256 + 10);
  EXPECT_EQ(Loaded(parts.Build()).gguf.tensors().size(), 3u);
}

TEST(Gguf, AcceptsAFileWithoutTensors) {
  GgufParts parts = SmallGguf();
  parts.tensors.clear();
  parts.data.clear();
  parts.alignment = 1;  // no padding either
  EXPECT_TRUE(Loaded(parts.Build()).gguf.tensors().empty());
}

TEST(Gguf, NamesTheKeyWhenItsTypeIsAnother) {
  const Loaded file(SmallGguf().Build());
  const GgufFile& gguf = file.gguf;
  for (const std::string& message :
       {ErrorOf([&] { gguf.FindUint("a.i32"); }), ErrorOf([&] { gguf.FindFloat("a.i32"); }),
        ErrorOf([&] { gguf.FindBool("a.i32"); }), ErrorOf([&] { gguf.FindString("a.i32"); }),
        ErrorOf([&] { gguf.FindStrings("a.i32"); })}) {
    ExpectClearMessage(message, "small.gguf");
    EXPECT_NE(message.find("'a.i32'"), std::string::npos) << message;
  }
  EXPECT_EQ(gguf.FindUint("absent"), std::nullopt);
  EXPECT_EQ(gguf.FindFloat("absent"), std::nullopt);
  EXPECT_EQ(gguf.FindBool("absent"), std::nullopt);
  EXPECT_EQ(gguf.FindString("absent"), nullptr);
  EXPECT_EQ(gguf.FindStrings("absent"), nullptr);
}

TEST(Gguf, RefusesWhatIsNotGguf) {
  const std::string good = SmallGguf().Build();
  ExpectError("", "empty");
  ExpectError("GG", "only 2 bytes");
  ExpectError("GGML" + good.substr(4), "expected 'GGUF'");
  ExpectError("GGUF" + Raw<uint32_t>(1) + good.substr(8), "version 1");
  ExpectError("GGUF" + Raw<uint32_t>(4) + good.substr(8), "version 4");
  ExpectError("GGUF" + Raw<uint32_t>(0) + good.substr(8), "version 0");
  ExpectError("GGUF" + Raw<uint32_t>(3u << 24) + good.substr(8), "big-endian");
}

TEST(Gguf, RefusesFilesThatCannotBeRead) {
  const TempDir dir;
  const auto open = [](const std::filesystem::path& path) {
    return ErrorOf([&] { GgufFile file(path); });
  };
  EXPECT_NE(open(dir.path() / "absent.gguf").find("No such file"), std::string::npos);
  EXPECT_NE(open(dir.path()).find("is not a file"), std::string::npos);
  WriteFile(dir.path() / "empty.gguf", "");
  EXPECT_NE(open(dir.path() / "empty.gguf").find("is empty"), std::string::npos);
}

TEST(Gguf, RefusesCountsThatTheFileCannotHoldAtOnce) {
  const uint64_t huge = 1ULL << 60;
  ExpectError("GGUF" + Raw<uint32_t>(3) + Raw(huge) + Raw<uint64_t>(0), "tensors, too many");
  ExpectError("GGUF" + Raw<uint32_t>(3) + Raw<uint64_t>(0) + Raw(huge), "too many");
  for (const T type : {T::kUint8, T::kFloat64, T::kBool, T::kString}) {
    GgufParts parts;
    parts.AddArray("long", type, huge, "");
    ExpectError(parts.Build(), "claims 1152921504606846976 elements");
  }
  GgufParts parts;
  parts.Add("long", T::kString, Raw(~0ULL));
  ExpectError(parts.Build(), "ends inside metadata key 'long'");
}

TEST(Gguf, RefusesMetadataThatWouldFillTheMemory) {
  // 40 MB of the file as numbers would be 320 MB in memory.
  GgufParts parts;
  const uint64_t count = 40 << 20;
  parts.AddArray("weights read as metadata", T::kUint8, count, std::string(count, 'x'));
  ExpectError(parts.Build(), "more than 256 MB");
}

TEST(Gguf, RefusesBadMetadata) {
  const auto with = [](std::string_view key, T type, const std::string& value) {
    GgufParts parts = SmallGguf();
    parts.Add(key, type, value);
    return parts.Build();
  };
  ExpectError(with("a.u8", T::kUint8, "x"), "'a.u8' twice");
  ExpectError(with("", T::kUint8, "x"), "key of 0 bytes");
  ExpectError(with(std::string(70000, 'k'), T::kUint8, "x"), "key of 70000 bytes");
  ExpectError(with("k", T::kBool, "\2"), "expected 0 (false) or 1 (true)");
  ExpectError(with("k", static_cast<T>(13), "x"), "unknown value type 13");
  ExpectError(with("k", T::kArray, Raw<uint32_t>(99) + Raw<uint64_t>(1)), "unknown value type 99");
  ExpectError(with("k", T::kArray, Raw<uint32_t>(9) + Raw<uint64_t>(1)), "array of arrays");
  ExpectError(with("line\nbreak\xff", T::kBool, "\2"), "'line\\x0abreak\\xff'");
  for (const uint32_t alignment : {0u, 1u, 4u, 33u, 48u, 1u << 21}) {
    ExpectError(with("general.alignment", T::kUint32, Raw(alignment)), "expected a power of two");
  }
  ExpectError(with("split.count", T::kUint16, Raw<uint16_t>(5)), "merge them");
  EXPECT_EQ(Loaded(with("split.count", T::kUint16, Raw<uint16_t>(1))).gguf.tensors().size(), 3u);
}

TEST(Gguf, RefusesBadTensors) {
  const auto with = [](const std::function<void(GgufParts&)>& change) {
    GgufParts parts = SmallGguf();
    change(parts);
    return parts.Build();
  };
  const auto first = [&](const GgufParts::TensorInfo& info) {
    return with([&](GgufParts& parts) { parts.tensors[0] = info; });
  };
  ExpectError(first({"iq", {256}, 17, 0}), "IQ2_XS");
  ExpectError(first({"unknown", {256}, 12345, 0}), "number 12345");
  ExpectError(first({"none", {}, 0, 0}), "0 dimensions");
  ExpectError(first({"five", {1, 1, 1, 1, 1}, 0, 0}), "5 dimensions");
  ExpectError(first({"zero", {3, 0}, 0, 0}), "no elements");
  ExpectError(first({"odd", {33}, 8, 0}), "multiple of 32 for Q8_0");
  ExpectError(first({"huge", {1ULL << 62, 4}, 0, 0}), "larger than any file");
  ExpectError(first({"wrap", {1ULL << 32, 1ULL << 32, 1}, 0, 0}), "larger than any file");
  ExpectError(first({"long", {1000}, 0, 0}), "cut short");
  ExpectError(first({"far", {3}, 0, ~0ULL - 31}), "cut short");
  ExpectError(first({"skewed", {3}, 0, 4}), "multiple of the alignment");
  ExpectError(first({"", {3}, 0, 0}), "name of 0 bytes");
  ExpectError(first({std::string(64, 'n'), {3}, 0, 0}), "name of 64 bytes");
  ExpectError(first({"q8.weight", {3}, 0, 0}), "'q8.weight' twice");
  ExpectError(first({"over", {9}, 0, 0}), "'over' and 'q8.weight' overlap");
  ExpectError(with([](GgufParts& parts) { parts.data.resize(40); }), "cut short");
  ExpectError(with([](GgufParts& parts) { parts.data.clear(); }), "cut short");
}

TEST(Gguf, AcceptsTensorsInAnyOrderWithGaps) {
  GgufParts parts = SmallGguf();
  std::swap(parts.tensors[0], parts.tensors[2]);
  parts.tensors[0].offset = 256;
  parts.data.resize(266);
  EXPECT_EQ(Loaded(parts.Build()).gguf.tensors()[0].name, "f16.weight");
}

// Reads every byte that the file object hands out.
void UseEverything(const GgufFile& gguf, std::span<const std::byte> bytes) {
  for (const Tensor& tensor : gguf.tensors()) {
    ASSERT_GE(tensor.bytes.data(), bytes.data());
    ASSERT_LE(tensor.bytes.data() + tensor.bytes.size(), bytes.data() + bytes.size());
    ASSERT_EQ(tensor.bytes.size(), tensor.rows() * RowBytes(tensor.dtype, tensor.cols()));
    std::vector<float> row(tensor.cols());
    for (uint64_t i = 0; i < tensor.rows(); ++i) {
      DecodeRow(tensor.dtype, tensor.bytes.data() + i * RowBytes(tensor.dtype, tensor.cols()),
                tensor.cols(), row.data());
    }
    gguf.Release(tensor);
  }
  for (const auto& [key, value] : gguf.metadata()) EXPECT_EQ(gguf.FindValue(key), &value);
}

TEST(Gguf, AnyDamageGivesAClearErrorOrAValidLoad) {
  size_t num_errors = 0;
  size_t num_cases = 0;
  ForEachDamage(SmallGguf().Build(), [&](const std::string& damaged) {
    ++num_cases;
    try {
      const Loaded file(damaged);
      UseEverything(file.gguf, file.bytes);
    } catch (const Error& error) {
      ++num_errors;
      ExpectClearMessage(error.what(), "small.gguf");
    }
  });
  EXPECT_GT(num_errors, num_cases / 4);
  EXPECT_LT(num_errors, num_cases);  // flipped data bytes still load
}

TEST(Gguf, EveryCutGivesAnError) {
  const std::string file = SmallGguf().Build();
  for (size_t size = 0; size < file.size(); ++size) LoadError(file.substr(0, size));
}

TEST(Gguf, LoadsFilesThatLlamaCppLoads) {
  const std::filesystem::path data = SPA_TEST_DATA;
  struct Case {
    const char* file;
    const char* architecture;
    size_t num_tensors;
    DType dtype;
    uint64_t width;
  };
  for (const Case& c : {Case{"tiny-llada-F32.gguf", "llada", 30, DType::kF32, 64},
                        Case{"tiny-llada-Q8_0.gguf", "llada", 30, DType::kQ8_0, 64},
                        Case{"tiny-llada-Q4_K.gguf", "llada", 30, DType::kQ4_K, 256},
                        Case{"tiny-dream-F32.gguf", "dream", 39, DType::kF32, 64},
                        Case{"tiny-dream-Q6_K.gguf", "dream", 39, DType::kQ6_K, 256}}) {
    const GgufFile gguf(data / c.file);
    EXPECT_EQ(*gguf.FindString("general.architecture"), c.architecture);
    EXPECT_EQ(gguf.FindUint(std::string(c.architecture) + ".block_count"), 3u);
    EXPECT_EQ(gguf.tensors().size(), c.num_tensors);
    const Tensor* query = gguf.Find("blk.2.attn_q.weight");
    ASSERT_NE(query, nullptr);
    EXPECT_EQ(query->dtype, c.dtype);
    EXPECT_EQ(query->shape, (std::vector<uint64_t>{c.width, c.width}));
    EXPECT_EQ(gguf.Find("output_norm.weight")->dtype, DType::kF32);
    for (const Tensor& tensor : gguf.tensors()) gguf.Release(tensor);
  }
}

}  // namespace
}  // namespace spa
