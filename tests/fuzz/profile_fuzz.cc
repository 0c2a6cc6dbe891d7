// Any bytes as a stored profile end in a budget that makes sense for the model, or in Error.
#include "policies/spa_profile.h"
#include "tests/fuzz/fuzz_util.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const spa::ModelFile model = spa::ModelFile::Open(SPA_TEST_DATA "/tiny-llada-Q8_0.gguf");
  static spa::ScratchFile file("profile.json");
  file.Write(spa::AsText(data, size));
  spa::AcceptOrRefuse([&] {
    const spa::Budget budget = spa::ReadProfile(file.path(), model);
    for (const double ratio : {budget.peak_ratio, budget.first_ratio, budget.last_ratio}) {
      spa::Require(ratio > 0.0 && ratio <= 1.0);
    }
    spa::Require(budget.peak_layer >= 1.0 && budget.peak_layer <= 3.0);
  });
  return 0;
}
