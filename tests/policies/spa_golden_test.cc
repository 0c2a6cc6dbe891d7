// SPA-Cache against the plain PyTorch reference of its variants: same answers, same rows chosen.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "policies/spa.h"
#include "tests/test_model.h"
#include "tests/thinned.h"

namespace spa::spa_golden_test {
namespace {

using nlohmann::json;

const std::string kModel = SPA_TEST_DATA "/mini.gguf";

std::vector<std::string> OptionsOf(const json& golden) {
  const json& o = golden["options"];
  const auto refresh = [&](const char* key) {
    return std::to_string(o.contains(key) ? o[key].get<int>() : 0);
  };
  std::vector<std::string> options = {
      "identifier=" + (o.contains("identifier") ? o["identifier"].get<std::string>() : "singular"),
      std::string("form=") + (o["form"] == "delta" ? "update" : "output"),
      "proxy=" + o["proxy"].get<std::string>(),
      "scope=" + o["scope"].get<std::string>(),
      "kv=" + o["kv"].get<std::string>(),
      std::string("first-layer=") + (o["dense0"].get<bool>() ? "dense" : "proxy"),
      "refresh-gen=" + refresh("gen_refresh"),
      "refresh-prompt=" + refresh("prompt_refresh"),
      "rank=" + std::to_string(golden["rank"].get<int>()),
      "focus=off"};
  if (golden["variant"] == "value-uniform") {
    options.push_back("rho=0.25");
  } else {
    for (const char* bell : {"peak-layer=8", "rho-peak=0.25", "rho-first=0.03", "rho-last=0.13"}) {
      options.push_back(bell);
    }
  }
  return options;
}

TEST(SpaGolden, EveryVariantReproducesTheReference) {
  TestModel model(kModel);
  std::ifstream in(SPA_TEST_DATA "/minidlm_golden_spa.jsonl");
  size_t cases = 0;
  for (std::string line; std::getline(in, line); ++cases) {
    if (!RunsCase(cases)) continue;
    const json golden = json::parse(line);
    const auto generation =
        model.Start(golden["prompt_ids"], Greedy(golden["gen_length"], golden["block_length"]),
                    model.Policy("spa", OptionsOf(golden)));
    generation->state().trace = true;
    Generation* one = generation.get();
    while (!generation->done()) {
      StepTogether(model.transformer, {&one, 1});
      for (const json& chosen : golden["chosen_rows"]) {
        if (chosen[0].get<size_t>() + 1 != generation->decoder().steps()) continue;
        const RowSet& rows = generation->state().traced_rows[chosen[1].get<size_t>()];
        EXPECT_EQ(rows, RowSet(chosen[2].get<std::vector<uint32_t>>()))
            << golden["variant"] << " layer " << chosen[1];
      }
    }
    EXPECT_EQ(TestModel::Answer(*generation), golden["output_ids"].get<std::vector<TokenId>>())
        << golden["variant"];
    EXPECT_EQ(generation->rows_computed(), golden["rows_computed"].get<uint64_t>());
  }
  EXPECT_EQ(cases, 16u);
}

}  // namespace
}  // namespace spa::spa_golden_test
