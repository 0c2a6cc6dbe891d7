// A Hugging Face folder's weights: one model.safetensors, or the shards its index names. All shards
// are mapped at once (LLaDA spreads each layer over five or six of them).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "file/tensor_file.h"

namespace spa {

// The tensors of one safetensors file in the order of their data, pointing into `bytes`. Throws
// Error unless they fill the file without gap or overlap; `name` appears in errors.
std::vector<Tensor> ParseSafetensors(std::span<const std::byte> bytes, const std::string& name);

// The pairs (tensor, shard file) of an index. Shards are plain file names: no path leaves the
// folder.
std::vector<std::pair<std::string, std::string>> ParseSafetensorsIndex(
    std::span<const std::byte> bytes, const std::string& name);

class SafetensorsFolder : public TensorFile {
 public:
  // Throws Error if the folder has no weights, a shard is missing or damaged, a name appears twice,
  // ranges overlap or a dtype is not F32, F16 or BF16.
  explicit SafetensorsFolder(const std::filesystem::path& folder);

  const std::vector<Tensor>& tensors() const override { return tensors_; }
  void Release(const Tensor& tensor) const override;
  bool Changed() const override;

 private:
  void AddShard(const std::filesystem::path& path);
  void CheckUniqueNames(const std::filesystem::path& folder) const;

  std::vector<std::unique_ptr<MappedFile>> shards_;
  std::vector<Tensor> tensors_;
};

}  // namespace spa
