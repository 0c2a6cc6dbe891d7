// A model on disk (a GGUF file or a Hugging Face folder) or in memory, opened and checked: its
// configuration, and every tensor found under its name with the shape it must have.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "file/gguf.h"
#include "file/tensor_file.h"
#include "model/config.h"
#include "model/tensor_names.h"

namespace spa {

// The file changed since it was loaded.
class ModelChanged : public Error {
 public:
  using Error::Error;
};

class ModelFile {
 public:
  // Throws Error when the path is neither, or anything in it is missing or makes no sense.
  static ModelFile Open(const std::filesystem::path& path);
  // A GGUF image in memory that outlives the object.
  static ModelFile FromMemory(std::span<const std::byte> gguf, std::string name);

  const ModelConfig& config() const { return config_; }
  const std::string& where() const { return where_; }  // for messages
  const TensorFile& tensors() const { return *tensors_; }
  // nullptr if the model is a folder.
  const GgufFile* gguf() const { return gguf_; }
  const std::filesystem::path& path() const { return path_; }  // empty if in memory
  uint64_t tensor_bytes() const;

  // Always present: Open has checked. kHead of a tied model is the embedding. What the file stores
  // within a larger tensor (q, k, v; an expert) comes as its rows of that.
  const Tensor& Get(TensorRole role, size_t layer = 0, size_t expert = 0) const;

  const Tensor& Get(const TensorKey& key) const { return Get(key.role, key.layer, key.expert); }
  bool fused_qkv() const { return fused_qkv_; }  // q, k and v are stored as one tensor

  // The order in which stored rows of Wq or Wk become rows of the half-split RoPE layout; empty
  // when they already are (see ModelConfig::interleaved_qk).
  std::vector<uint32_t> HalfSplitRowOrder(TensorRole role) const;

  // Throws ModelChanged if the file was written to since it was opened: new reads may not match
  // what was loaded. Costs a system call per file.
  void CheckUnchanged() const;

  // A number that changes when the weights do: names, types, shapes and samples of the bytes.
  uint64_t Fingerprint() const;

 private:
  ModelFile() = default;
  void Check(const TensorNames& names);

  ModelConfig config_;
  std::string where_;
  std::filesystem::path path_;
  std::unique_ptr<TensorFile> tensors_;
  const GgufFile* gguf_ = nullptr;
  bool fused_qkv_ = false;
  std::unordered_map<uint64_t, Tensor> parts_;  // by role, layer and expert
};

}  // namespace spa
