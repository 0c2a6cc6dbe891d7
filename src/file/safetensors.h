// A Hugging Face folder's weights: one model.safetensors, or the shards its index names. All shards
// are mapped at once (LLaDA spreads each layer over five or six of them).
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "base/mapped_file.h"
#include "file/tensor_file.h"

namespace spa {

class SafetensorsFolder : public TensorFile {
 public:
  // Throws Error if the folder has no weights, a shard is missing or damaged, a name appears twice,
  // ranges overlap or a dtype is not F32, F16 or BF16.
  explicit SafetensorsFolder(const std::filesystem::path& folder);

  const std::vector<Tensor>& tensors() const override { return tensors_; }
  void Release(const Tensor& tensor) const override;

 private:
  void AddShard(const std::filesystem::path& path);

  std::vector<std::unique_ptr<MappedFile>> shards_;
  std::vector<Tensor> tensors_;
};

}  // namespace spa
