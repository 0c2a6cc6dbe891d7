// Any bytes as a model's config.json end in a configuration that passes its own check, or in Error.
#include "model/config.h"
#include "tests/fuzz/fuzz_util.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static spa::ScratchFile file("config.json");
  file.Write(spa::AsText(data, size));
  spa::AcceptOrRefuse([] {
    const spa::ModelConfig config = spa::ConfigFromFolder(spa::ScratchFolder());
    spa::ValidateConfig(config, "fuzz");
    spa::Require(config.num_layers > 0 && config.num_heads > 0 && config.num_kv_heads > 0);
    spa::Require(config.num_heads % config.num_kv_heads == 0);
  });
  return 0;
}
