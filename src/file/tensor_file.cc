#include "file/tensor_file.h"

namespace spa {

uint64_t Tensor::rows() const {
  uint64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

const Tensor* TensorFile::Find(std::string_view name) const {
  for (const Tensor& tensor : tensors()) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace spa
