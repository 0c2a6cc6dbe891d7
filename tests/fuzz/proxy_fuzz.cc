// Any bytes as stored proxies end in one matrix per layer of the model, or in Error.
#include "policies/spa_proxy.h"
#include "tests/fuzz/fuzz_util.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const spa::ModelFile model = spa::ModelFile::Open(SPA_TEST_DATA "/tiny-llada-Q8_0.gguf");
  constexpr size_t kRank = 2;
  static spa::ScratchFile file("proxies.gguf");
  file.Write(spa::AsText(data, size));
  spa::AcceptOrRefuse([&] {
    const spa::Proxies proxies = spa::ReadProxies(file.path(), model, kRank);
    spa::Require(proxies.layers.size() == model.config().num_layers);
    for (const spa::LayerProxy& layer : proxies.layers) {
      spa::Require(layer.projection.rows() == kRank);
      spa::Require(layer.projection.cols() == model.config().model_dim);
      spa::Require(layer.singular_values.size() >= kRank);
      layer.RetainedEnergy();
      layer.SimilarityBound();
    }
  });
  return 0;
}
