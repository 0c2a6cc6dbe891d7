// How far rows move between two steps, layer by layer: the measurement behind SPA-Cache's budget.
// Decodes real prompts without a cache and compares every row with the step before.
#pragma once

#include <array>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "lab/component_times.h"
#include "policies/spa_budget.h"

namespace spa {

// Rows of a layer that are compared. The output of a layer is the input of the next.
enum class Feature { kInput, kValue, kProxy, kAttention, kOutput };
inline constexpr std::array<std::string_view, 5> kFeatureNames = {
    "layer input", "value", "singular proxy", "attention output", "layer output"};

// Per layer, for one feature.
struct FeatureDrift {
  std::vector<double> drifted;     // share of rows whose similarity to the step before is below tau
  std::vector<double> similarity;  // mean similarity to the step before
};

// Similarity of a layer's outputs to the step before, for one prompt.
struct SimilarityMap {
  size_t layer = 0;
  size_t first_pos = 0;                        // position of the first compared row
  std::vector<std::vector<float>> similarity;  // per step from the second, per row
};

// The paper's claims about identifiers, checked on the compared rows; per layer.
struct TheoryCheck {
  // |similarity of proxies - similarity of values|, its lemma's bound on that, and the largest
  // ratio of the two: at most 1.
  std::vector<double> proxy_error, bound, ratio;
  // Of the rows whose attention output moved by more than kMoved (1 - cosine), the share whose
  // value moved less than kStill. Theorem 1 bounds the first by the second and a residual.
  std::vector<double> unseen;
  static constexpr double kMoved = 0.01, kStill = 0.001;
};

struct DriftProfile {
  double tau = 0.95;
  bool scope_all = false;  // all rows were compared, or the generated ones
  size_t rank = 0;         // of the singular proxy
  size_t num_prompts = 0, num_steps = 0;
  std::array<FeatureDrift, kFeatureNames.size()> features;
  std::vector<double> value_cosine, attention_cosine;  // mean over pairs of rows of a step
  std::vector<SimilarityMap> maps;                     // first prompt; first, middle and last layer
  std::vector<std::vector<double>> spectra;  // singular values of each layer's value projection
  TheoryCheck theory;
  Feature fitted = Feature::kOutput;
  Budget budget;
  double fit_error = 0.0;  // root mean square of the fit
};

struct ProfileOptions {
  double tau = 0.95;
  bool scope_all = false;
  Feature fitted = Feature::kOutput;  // the curve the budget is fitted to
  DecodeOptions decode;
};

DriftProfile MeasureDrift(Engine& engine, std::span<const std::vector<TokenId>> prompts,
                          const ProfileOptions& options, const Progress& progress = {});

// What ReadProfile (policies/spa_profile.h) reads, with the curves.
std::string ProfileJson(const DriftProfile& profile, const ModelFile& file);

std::string ProfileReport(const DriftProfile& profile, std::span<const ComponentTimes> times,
                          const std::string& model);

}  // namespace spa
