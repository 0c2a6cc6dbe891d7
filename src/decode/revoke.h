// Revocable decoding: what is settled, and which settled positions open again.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "decode/token_sampler.h"

namespace spa {

// All functions return indices, ascending; ties go to the lower one.

// WINO (arXiv 2507.18578). Settles the candidates more probable than `threshold`, at most 70% of
// all (a limit of at least 5 and at most 20); the best one if there are none.
std::vector<size_t> WinoSettles(std::span<const Candidate> candidates, double threshold);

// unseen: for each settled position, how probable its token is when it is hidden. Those below
// `least` open again, but fewer than `last`, the number settled in the step before, so that every
// two steps settle more than they open.
constexpr size_t kWinoFirstLast = 30;
std::vector<size_t> WinoOpens(std::span<const double> unseen, double least, size_t last);

// Saber (arXiv 2510.18165). Settles the candidates more probable than `mean`, the mean confidence
// of what was settled before, and at least `count`.
std::vector<size_t> SaberSettles(std::span<const Candidate> candidates, double mean, size_t count);

// gain: for each settled position, how much surer the model became of it in this step. The least
// open again: max(count / 2, settled_now / 8 rounded up), but fewer than settled_now.
std::vector<size_t> SaberOpens(std::span<const double> gain, size_t count, size_t settled_now);

}  // namespace spa
