// A model file as checked views, whatever its format: names, types, shapes and bytes of tensors.
// Everything here has been validated against the file's size; the bytes live as long as the file
// object. Readers are in gguf.h and safetensors.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace spa {

struct Tensor {
  std::string name;
  DType dtype = DType::kF32;
  // As Hugging Face writes them: slowest first, so a weight is [out, in]. At most 4, each >= 1;
  // their product and the size in bytes fit in the file.
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;

  uint64_t cols() const { return shape.empty() ? 1 : shape.back(); }
  uint64_t rows() const;  // product of all other dimensions
  uint64_t num_elements() const { return rows() * cols(); }
};

class TensorFile {
 public:
  virtual ~TensorFile() = default;

  // In file order. Names are unique.
  virtual const std::vector<Tensor>& tensors() const = 0;
  // nullptr if absent.
  const Tensor* Find(std::string_view name) const;
  // The tensor's pages will not be needed again soon (it was copied or repacked).
  virtual void Release(const Tensor& tensor) const = 0;
  // Whether the file was written to after it was opened (MappedFile::Changed).
  virtual bool Changed() const = 0;
};

}  // namespace spa
