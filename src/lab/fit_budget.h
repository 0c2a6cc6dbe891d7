// The bell of SPA-Cache's budget fitted to measured drift.
#pragma once

#include <span>

#include "policies/spa_budget.h"

namespace spa {

// The bell of spa_budget.h nearest to the ratios of layers 1 ... L by least squares. `error` gets
// the root mean square distance.
Budget FitBudget(std::span<const double> ratios, double* error = nullptr);

}  // namespace spa
