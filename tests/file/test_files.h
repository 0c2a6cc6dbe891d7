// Small files for the tests of this folder: a temporary directory, and GGUF and safetensors files
// built byte by byte, so that they can be wrong in any way.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "file/gguf_layout.h"

namespace spa {

class TempDir {
 public:
  TempDir() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("spa_file_test_{}_{}", ::getpid(), count++);
    std::filesystem::create_directories(path_);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void WriteFile(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <typename T>
std::string Raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string GgufString(std::string_view text) {
  return Raw<uint64_t>(text.size()) + std::string(text);
}

// The parts of a GGUF file; Build puts them together. Counts can be overridden to lie.
struct GgufParts {
  struct TensorInfo {
    std::string name;
    std::vector<uint64_t> ne;  // fastest first, as in the file
    uint32_t type = 0;
    uint64_t offset = 0;
  };

  uint32_t version = 3;
  std::vector<std::string> values;  // encoded key, type and value
  std::vector<TensorInfo> tensors;
  std::string data;
  uint64_t alignment = 32;

  void Add(std::string_view key, GgufValueType type, const std::string& encoded) {
    values.push_back(GgufString(key) + Raw(type) + encoded);
  }
  void AddArray(std::string_view key, GgufValueType type, uint64_t count,
                const std::string& encoded) {
    Add(key, GgufValueType::kArray, Raw(type) + Raw(count) + encoded);
  }

  std::string Build() const {
    std::string file =
        "GGUF" + Raw(version) + Raw<uint64_t>(tensors.size()) + Raw<uint64_t>(values.size());
    for (const std::string& value : values) file += value;
    for (const TensorInfo& tensor : tensors) {
      file += GgufString(tensor.name) + Raw<uint32_t>(static_cast<uint32_t>(tensor.ne.size()));
      for (const uint64_t size : tensor.ne) file += Raw(size);
      file += Raw(tensor.type) + Raw(tensor.offset);
    }
    file.resize((file.size() + alignment - 1) / alignment * alignment, '\0');
    return file + data;
  }
};

// Metadata of every type and three tensors: F32 [2, 3], Q8_0 [2, 32], F16 [5].
inline GgufParts SmallGguf() {
  using T = GgufValueType;
  GgufParts parts;
  parts.Add("general.architecture", T::kString, GgufString("llada"));
  parts.Add("a.u8", T::kUint8, Raw<uint8_t>(200));
  parts.Add("a.i8", T::kInt8, Raw<int8_t>(-100));
  parts.Add("a.u16", T::kUint16, Raw<uint16_t>(60000));
  parts.Add("a.i16", T::kInt16, Raw<int16_t>(-30000));
  parts.Add("a.u32", T::kUint32, Raw<uint32_t>(4000000000));
  parts.Add("a.i32", T::kInt32, Raw<int32_t>(-2000000000));
  parts.Add("a.u64", T::kUint64, Raw<uint64_t>(1ULL << 63));
  parts.Add("a.i64", T::kInt64, Raw<int64_t>(-(1LL << 62)));
  parts.Add("a.f32", T::kFloat32, Raw(0.5f));
  parts.Add("a.f64", T::kFloat64, Raw(0.1));
  parts.Add("a.bool", T::kBool, Raw<uint8_t>(1));
  parts.AddArray("b.u8", T::kUint8, 2, Raw<uint8_t>(1) + Raw<uint8_t>(255));
  parts.AddArray("b.i32", T::kInt32, 2, Raw<int32_t>(-1) + Raw<int32_t>(7));
  parts.AddArray("b.f32", T::kFloat32, 1, Raw(-2.5f));
  parts.AddArray("b.bool", T::kBool, 3, std::string("\1\0\1", 3));
  parts.AddArray("b.str", T::kString, 3,
                 GgufString("a") + GgufString("") + GgufString("\xff\xfe not UTF-8"));
  parts.tensors = {
      {"f32.weight", {3, 2}, 0, 0}, {"q8.weight", {32, 2}, 8, 32}, {"f16.weight", {5}, 1, 128}};
  parts.data.resize(128 + 10);
  for (size_t i = 0; i < parts.data.size(); ++i) parts.data[i] = static_cast<char>(7 * i + 3);
  return parts;
}

// A safetensors file from a header and data; padding to 8 bytes as the usual writer does.
inline std::string Safetensors(std::string header, std::string_view data) {
  while (header.size() % 8 != 0) header += ' ';
  return Raw<uint64_t>(header.size()) + header + std::string(data);
}

// The message of the Error that `fn` throws; fails the test if it throws none.
inline std::string ErrorOf(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

// One line of printable text that starts with the name of the file.
inline void ExpectClearMessage(const std::string& message, std::string_view name) {
  EXPECT_NE(message.find(name), std::string::npos) << message;
  EXPECT_LT(message.size(), 400u) << message;
  for (const char c : message) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << message;
}

// Calls fn with `file` cut at every length and with every byte changed by every pattern.
inline void ForEachDamage(const std::string& file,
                          const std::function<void(const std::string&)>& fn,
                          const std::vector<int>& patterns = {0x01, 0x02, 0x04, 0x20, 0x80, 0xff}) {
  for (size_t size = 0; size < file.size(); ++size) fn(file.substr(0, size));
  for (size_t i = 0; i < file.size(); ++i) {
    for (const int pattern : patterns) {
      std::string damaged = file;
      damaged[i] = static_cast<char>(damaged[i] ^ pattern);
      fn(damaged);
    }
  }
}

}  // namespace spa
