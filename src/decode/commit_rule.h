// Which candidates of a step are settled. Ties go to the lower position everywhere, so runs repeat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "decode/token_sampler.h"

namespace spa {

// All functions return indices into `candidates`, ascending.

// The `count` highest scores.
std::vector<size_t> CommitBest(std::span<const Candidate> candidates, size_t count);

// `count` candidates drawn without replacement, with probabilities softmax(score / temperature).
std::vector<size_t> CommitDrawn(std::span<const Candidate> candidates, size_t count,
                                double temperature, const RandomStream& random);

// Each candidate independently with the given probability (Dream's origin).
std::vector<size_t> CommitEach(std::span<const Candidate> candidates, double probability,
                               const RandomStream& random);

// Every candidate at least `threshold` probable, or the `at_least` most probable ones if that is
// fewer. No candidate reaches a threshold of 1.
std::vector<size_t> CommitThreshold(std::span<const Candidate> candidates, double threshold,
                                    size_t at_least = 1);

// The longest run of candidates, most probable first, whose entropies without the largest add up
// to at most `bound`; at least one (EB-Sampler). RND1's sampler ranks the same way.
std::vector<size_t> CommitEntropyBound(std::span<const Candidate> candidates, double bound);

// The same, least entropy first: while the entropies before a candidate add up to at most `bound`
// (DiffusionGemma).
std::vector<size_t> CommitLeastEntropy(std::span<const Candidate> candidates, double bound);

// The largest n with (n + 1) (1 - n-th highest probability) < factor, at least 1 (Fast-dLLM). The
// authors' code settles one more when only the last candidate fails; this follows their paper.
std::vector<size_t> CommitFactor(std::span<const Candidate> candidates, double factor);

// Of every run of adjacent positions the surest, if it is more probable than `low`; everything more
// probable than `high`; and the surest of all (dInfer's hierarchical rule).
std::vector<size_t> CommitHierarchical(std::span<const Candidate> candidates,
                                       std::span<const uint32_t> positions, double high,
                                       double low);

// Everything more probable than `threshold` whose distribution moved less than `divergence` in the
// last two steps; if there is none, the `quota` most probable (KLASS).
std::vector<size_t> CommitKlass(std::span<const Candidate> candidates, double threshold,
                                double divergence, size_t quota);

// A threshold that falls as the block fills: t (1 - loosen (1 - r)), where r is the share of masks
// among the rows that are computed, the block and the `suffix` after it (Streaming-dLLM).
double LoosenedThreshold(double threshold, double loosen, size_t open, size_t block, size_t suffix);

// Whether the best logits exceed the second best by 7.5, 5 or 2.5 on average, in the first, second
// or last third of the planned steps (Prophet).
bool ProphetExits(std::span<const Candidate> candidates, double progress);

}  // namespace spa
