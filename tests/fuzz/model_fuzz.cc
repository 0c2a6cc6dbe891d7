// Any GGUF image ends in Error or in a model with every tensor it needs and, if it carries one, a
// tokenizer that reads text. The input is the image without its tensors' data, which are zeros.
#include <algorithm>
#include <vector>

#include "model/model_file.h"
#include "model/tensor_names.h"
#include "tests/fuzz/fuzz_util.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kDataBytes = 20 << 10;  // of the seeds
  std::vector<std::byte> bytes(size + kDataBytes);
  std::ranges::copy(std::as_bytes(std::span(data, size)), bytes.begin());
  spa::AcceptOrRefuse([&] {
    const spa::ModelFile file = spa::ModelFile::FromMemory(bytes, "fuzz.gguf");
    spa::Require(file.Get(spa::TensorRole::kEmbedding).rows() == file.config().vocab_rows);
    file.Fingerprint();
  });
  spa::AcceptOrRefuse([&] {
    const spa::GgufFile file(bytes, "fuzz.gguf");
    const spa::Tokenizer tokenizer = spa::Tokenizer::FromGguf(file);
    tokenizer.Decode(tokenizer.EncodeWithSpecial("Hello <|eot_id|> 12345 \u4E00\n\n  x"));
    tokenizer.Describe();
  });
  return 0;
}
