// GGUF version 2 and 3, read through a memory map. Every count, length and offset is checked
// against the file before it is used; unknown tensor types are refused by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "file/tensor_file.h"

namespace spa {

// A metadata value. Integers of every width arrive as int64/uint64, floats as double.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<uint64_t>,
                               std::vector<int64_t>, std::vector<double>, std::vector<bool>,
                               std::vector<std::string>>;

class GgufFile : public TensorFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);
  // From memory that outlives the object (the embedded model); `name` appears in errors.
  GgufFile(std::span<const std::byte> bytes, std::string name);

  const std::vector<Tensor>& tensors() const override { return tensors_; }
  void Release(const Tensor& tensor) const override;
  bool Changed() const override { return map_ != nullptr && map_->Changed(); }

  const std::string& name() const { return name_; }  // path, for messages
  uint32_t version() const { return version_; }
  uint64_t file_bytes() const { return bytes_.size(); }
  // Keys in file order, for printing and copying.
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const { return metadata_; }

  // metadata()[index] as the file stores it: key, type and value, with the original widths.
  std::span<const std::byte> encoded(size_t index) const { return encoded_[index]; }

  // nullptr if absent.
  const GgufValue* FindValue(std::string_view key) const;
  // nullopt if absent; Error naming the key if the type differs. Integer widths convert.
  std::optional<uint64_t> FindUint(std::string_view key) const;
  std::optional<double> FindFloat(std::string_view key) const;
  std::optional<bool> FindBool(std::string_view key) const;
  const std::string* FindString(std::string_view key) const;
  const std::vector<std::string>* FindStrings(std::string_view key) const;

 private:
  void Parse();

  std::unique_ptr<MappedFile> map_;
  std::span<const std::byte> bytes_;
  std::string name_;
  uint32_t version_ = 0;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<std::span<const std::byte>> encoded_;
  std::vector<Tensor> tensors_;
};

}  // namespace spa
