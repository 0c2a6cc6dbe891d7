// Any bytes given to the GGUF reader end in spa::Error or in tensors whose rows can be decoded.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "file/gguf.h"
#include "kernels/block_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  try {
    const spa::GgufFile file(bytes, "fuzz.gguf");
    for (const spa::Tensor& tensor : file.tensors()) {
      const size_t row_bytes = spa::RowBytes(tensor.dtype, tensor.cols());
      if (tensor.bytes.size() != row_bytes * tensor.rows()) std::abort();
      std::vector<float> row(tensor.cols());
      for (uint64_t i = 0; i < tensor.rows(); ++i) {
        spa::DecodeRow(tensor.dtype, tensor.bytes.data() + i * row_bytes, row.size(), row.data());
      }
    }
    for (const auto& [key, value] : file.metadata()) {
      if (file.FindValue(key) != &value) std::abort();
    }
  } catch (const spa::Error&) {
  }
  return 0;
}
