#include "lab/profile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "lab/compare.h"
#include "lab/fit_budget.h"
#include "lab/report.h"
#include "policies/spa.h"
#include "policies/spa_profile.h"

namespace spa {
namespace {

void WriteText(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

TEST(FitBudget, RecoversAKnownBell) {
  for (const Budget& known : {Budget{24.0, 0.25, 0.03, 0.13}, Budget{14.0, 0.30, 0.05, 0.25},
                              Budget{5.5, 0.6, 0.2, 0.02}}) {
    double error = 1.0;
    const Budget fitted = FitBudget(BudgetRatios(known, 32), &error);
    EXPECT_NEAR(fitted.peak_layer, known.peak_layer, 0.26);
    EXPECT_NEAR(fitted.peak_ratio, known.peak_ratio, 2e-3);
    EXPECT_NEAR(fitted.first_ratio, known.first_ratio, 2e-3);
    EXPECT_NEAR(fitted.last_ratio, known.last_ratio, 2e-3);
    EXPECT_LT(error, 1e-3);
  }
}

TEST(FitBudget, GivesAllowedNumbersForAnyCurve) {
  for (const std::vector<double>& curve :
       {std::vector<double>{0.0, 0.0, 0.0}, std::vector<double>{1.0, 1.0}, std::vector<double>{0.4},
        std::vector<double>{0.5, 0.1, 0.0, 0.2, 0.9}}) {
    const Budget fitted = FitBudget(curve);
    for (const double ratio : {fitted.peak_ratio, fitted.first_ratio, fitted.last_ratio}) {
      EXPECT_GE(ratio, 1e-4);
      EXPECT_LE(ratio, 1.0);
    }
    EXPECT_GE(fitted.peak_layer, 1.0);
    EXPECT_LE(fitted.peak_layer, static_cast<double>(curve.size()));
  }
}

class ProfileTest : public testing::Test {
 protected:
  ProfileTest() {
    folder_ = std::filesystem::temp_directory_path() /
              ("spa-profile-" + std::to_string(getpid()) + "-" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~ProfileTest() override {
    unsetenv("XDG_CACHE_HOME");
    std::filesystem::remove_all(folder_);
  }

  static std::vector<double> Ratios(Engine& engine, const std::string& spec) {
    const CacheSpec parsed = ParseCacheSpec(spec);
    OptionReader reader(parsed, SpaOptionTable());
    return PrepareSpa(reader, engine.policy_context())->options.ratios;
  }

  std::filesystem::path folder_;
};

TEST_F(ProfileTest, IsMeasuredStoredAndPickedUp) {
  if (EmbeddedModel().empty()) GTEST_SKIP() << "built without the embedded model";
  Engine engine({.model = {}, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
  const std::vector<double> published = Ratios(engine, "spa");
  ProfileOptions options;
  options.decode = engine.DefaultDecodeOptions();
  options.decode.gen_length = options.decode.steps = 32;
  const std::vector<std::vector<TokenId>> prompts = {
      AskIds(engine, {}, BuiltInQuestions()[0].text, false)};
  const DriftProfile profile = MeasureDrift(engine, prompts, options);
  ASSERT_EQ(profile.value_cosine.size(), engine.config().num_layers);
  EXPECT_GT(profile.num_steps, 1u);
  for (size_t layer = 0; layer + 1 < engine.config().num_layers; ++layer) {
    // The output of a layer is the input of the next.
    EXPECT_EQ(profile.features[static_cast<size_t>(Feature::kOutput)].drifted[layer],
              profile.features[static_cast<size_t>(Feature::kInput)].drifted[layer + 1]);
  }
  for (const FeatureDrift& feature : profile.features) {
    for (const double share : feature.drifted) {
      EXPECT_GE(share, 0.0);
      EXPECT_LE(share, 1.0);
    }
    for (const double similarity : feature.similarity) EXPECT_LE(std::abs(similarity), 1.0 + 1e-6);
  }

  const std::filesystem::path path = ProfilePath(engine.file());
  std::filesystem::create_directories(path.parent_path());
  WriteText(path, ProfileJson(profile, engine.file()));
  // The shape is the profile's, the peak the published one.
  Budget scaled = profile.budget;
  const double scale = PublishedBudget(engine.config()).peak_ratio / profile.budget.peak_ratio;
  scaled.peak_ratio = PublishedBudget(engine.config()).peak_ratio;
  scaled.first_ratio *= scale;
  scaled.last_ratio *= scale;
  const std::vector<double> fitted = BudgetRatios(scaled, engine.config().num_layers);
  EXPECT_EQ(Ratios(engine, "spa"), fitted);
  EXPECT_EQ(Ratios(engine, "spa:profile=" + path.string()), fitted);
  EXPECT_EQ(Ratios(engine, "spa:profile=off"), published);
  EXPECT_NE(Ratios(engine, "spa:preset=reference"), fitted);
  EXPECT_EQ(Ratios(engine, "spa:rho=0.5"),
            std::vector<double>(engine.config().num_layers, 0.5));  // explicit numbers win
  WriteText(path, std::string(300000, '['));
  EXPECT_EQ(Ratios(engine, "spa"), published);
  WriteText(path, "{ damaged");
  EXPECT_EQ(Ratios(engine, "spa"), published);
  EXPECT_THROW(Ratios(engine, "spa:profile=" + path.string()), Error);
  const std::string page = ProfileReport(profile, {}, "mini");
  const size_t begin = page.find(R"({"title":"Drift profile")");
  ASSERT_NE(begin, std::string::npos);
  const auto report =
      nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  size_t num_maps = 0;
  for (const auto& section : report["sections"]) {
    if (!section.contains("plot")) continue;
    const auto& plot = section["plot"];
    if (plot["kind"] == "map") {
      ++num_maps;
      for (const auto& row : plot["values"]) EXPECT_EQ(row.size(), plot["values"][0].size());
    } else {
      for (const auto& one : plot["series"]) EXPECT_FALSE(one["points"].empty());
    }
  }
  EXPECT_EQ(num_maps, 3u);
  // The paper's lemma holds on the rows of a trained model, and says something.
  for (size_t layer = 0; layer < engine.config().num_layers; ++layer) {
    EXPECT_LE(profile.theory.ratio[layer], 1.0);
    EXPECT_GT(profile.theory.bound[layer], profile.theory.proxy_error[layer]);
    EXPECT_GT(profile.theory.proxy_error[layer], 0.0);
  }
  ASSERT_EQ(profile.spectra.size(), engine.config().num_layers);
  for (const auto& spectrum : profile.spectra) EXPECT_GE(spectrum.size(), profile.rank);
}

TEST_F(ProfileTest, OfAnotherModelIsRefused) {
  if (EmbeddedModel().empty()) GTEST_SKIP() << "built without the embedded model";
  Engine engine({.model = {}, .threads = 2, .kv_type = KvType::kF32, .progress = {}});
  const nlohmann::json profile = {
      {"fingerprint", "0123456789abcdef"},
      {"model", "LLaDA-of-somebody"},
      {"budget",
       {{"peak_layer", 2.0}, {"peak_ratio", 0.2}, {"first_ratio", 0.1}, {"last_ratio", 0.1}}}};
  const std::string path = (folder_ / "other.json").string();
  WriteText(path, profile.dump());
  try {
    Ratios(engine, "spa:profile=" + path);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("LLaDA-of-somebody"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("not for this model"), std::string::npos);
  }
  EXPECT_THROW(Ratios(engine, "spa:profile=/nowhere/at-all.json"), Error);
}

}  // namespace
}  // namespace spa
