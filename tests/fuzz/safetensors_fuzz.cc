// Any bytes given to the safetensors readers end in spa::Error or in tensors that can be decoded.
// The same bytes are tried as a file, as a header with fitting length and data, and as an index.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "file/safetensors.h"
#include "kernels/block_codec.h"

namespace {

void Try(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const spa::Error&) {
  }
}

void ReadFile(std::span<const std::byte> bytes) {
  for (const spa::Tensor& tensor : spa::ParseSafetensors(bytes, "fuzz.safetensors")) {
    if (tensor.bytes.size() != spa::RowBytes(tensor.dtype, tensor.num_elements())) std::abort();
    std::vector<float> values(tensor.num_elements());
    spa::DecodeRow(tensor.dtype, tensor.bytes.data(), values.size(), values.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  Try([&] { ReadFile(bytes); });
  Try([&] { spa::ParseSafetensorsIndex(bytes, "fuzz.index.json"); });

  constexpr size_t kDataBytes = 64;
  const uint64_t header_bytes = size;
  std::vector<std::byte> file(sizeof(header_bytes) + size + kDataBytes);
  std::memcpy(file.data(), &header_bytes, sizeof(header_bytes));
  if (size > 0) std::memcpy(file.data() + sizeof(header_bytes), data, size);
  Try([&] { ReadFile(file); });
  return 0;
}
