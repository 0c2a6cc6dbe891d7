// How many rows SPA-Cache recomputes in each layer: Equation 5 of the paper, a bell with different
// slopes on both sides of its peak.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/config.h"

namespace spa {

// l counts layers from 1 to L. All ratios are in (0, 1].
struct Budget {
  double peak_layer = 1.0;    // l_p
  double peak_ratio = 0.25;   // rho_p
  double first_ratio = 0.03;  // rho_1
  double last_ratio = 0.13;   // rho_L
};

// rho(l) for l = 1 ... num_layers.
std::vector<double> BudgetRatios(const Budget& budget, size_t num_layers);

// The authors' code evaluates the same bell at x = l / L with l from 0, so that rho_L would be
// reached one layer past the last, scales it to a peak ratio, and floors its left side.
std::vector<double> ReferenceBudgetRatios(const Budget& published, double peak_ratio,
                                          double floor_ratio, size_t num_layers);

// The paper's numbers for LLaDA-8B, LLaDA-1.5 and Dream-7B; the peak of other depths is placed in
// proportion.
Budget PublishedBudget(const ModelConfig& config);

double MeanRatio(const std::vector<double>& ratios);

// Rows of `scope` rows: floor(ratio * scope), at least one.
size_t BudgetRows(double ratio, size_t scope);

}  // namespace spa
