// Writes GGUF version 3 files that llama.cpp and other tools read. Declare metadata and tensors
// first, then hand over the tensor data in the same order; the file appears under its name only
// when Finish returns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/atomic_file.h"
#include "base/dtype.h"
#include "file/gguf.h"
#include "file/gguf_layout.h"

namespace spa {

class GgufWriter {
 public:
  explicit GgufWriter(const std::filesystem::path& path);

  void AddUint32(std::string_view key, uint32_t value);
  void AddInt32s(std::string_view key, std::span<const int32_t> values);
  void AddFloat32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStrings(std::string_view key, std::span<const std::string> values);
  // Copies every metadata key of `source` with its original type, except those in `skip`, those
  // added before and those that describe the layout of the source file (general.alignment,
  // split.*).
  void CopyMetadata(const GgufFile& source, std::span<const std::string_view> skip = {});

  // shape as in Tensor: slowest first. Throws Error if no GGUF file can hold such a tensor.
  void DeclareTensor(std::string name, DType dtype, std::vector<uint64_t> shape);

  // After all declarations. Data may come in pieces that do not cross from one tensor to the next;
  // each tensor is padded to the alignment.
  void BeginData();
  void WriteData(std::span<const std::byte> bytes);
  void Finish();

 private:
  void Key(std::string_view key, GgufValueType type);
  void PutString(std::string_view text);
  template <typename T>
  void PutNumber(T value);
  void Pad();

  struct Declared {
    std::string name;
    DType dtype;
    std::vector<uint64_t> shape;
    uint64_t bytes;
  };
  std::string name_;  // path, for messages
  AtomicFile file_;
  std::vector<std::byte> header_;  // the metadata, then the tensor table
  std::unordered_set<std::string> keys_;
  std::unordered_set<std::string> tensor_names_;
  std::vector<Declared> tensors_;
  bool in_data_ = false;
  size_t current_ = 0;         // tensor being written
  uint64_t current_done_ = 0;  // bytes of it written
};

}  // namespace spa
