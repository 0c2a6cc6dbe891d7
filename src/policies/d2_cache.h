// d2Cache (Accelerating Diffusion-Based LLMs via Dual Adaptive Caching, arXiv 2509.23094). After a
// dense first step, each step recomputes the k open positions that are surest and have most settled
// neighbours (certainty density), the rows just settled, and of the rest those that the last step's
// attention rollout ranks highest, as many as together carry at most the share p. There are no
// refreshes.
//
// Keeps per row and layer: K, V; of the last step the head-averaged attention weights. Costs per
// layer: the whole layer for the chosen rows, and their weights times one vector. The authors' code
// never updates its memory of confidences after the first step, and its blocks shrink to what was
// open in them before the last step (compat=on does the same); here a position's latest confidence
// counts, and blocks keep their length. With guidance only the block's positions have one; others
// count as 0, so the nearest go first. Rows the decoder wants are always computed, so a block
// longer than k computes more than k positions, and a new block's first step misses none. Their
// batches pad every sequence to the largest row set; here each sequence has its own.
#pragma once

#include "policies/registry.h"
#include "policies/step_rows.h"

namespace spa {

struct D2Options {
  double p = 0.1;       // share of the rollout importance
  size_t k = 32;        // open positions
  double sigma = 10.0;  // width of the density's kernel; 0: no density
  size_t inflate = 0;   // gaps between chosen rows up to this long are filled
  bool compat = false;  // the first confidence of a position counts, and blocks shrink
};

class D2Policy : public OneSetPolicy {
 public:
  explicit D2Policy(const D2Options& options) : options_(options) {}

  Keeps keeps() const override { return {.attention = true, .confidence = true}; }
  std::optional<RowSet> AfterAttention(const AttentionView& view) override;
  void EndStep(std::span<const uint32_t> positions, std::span<const float> confidence) override;
  size_t bytes() const override;
  size_t BytesFor(const ModelConfig& config, size_t num_rows, size_t kept_rows) const override;

 protected:
  RowSet RowsOfStep(const StepInput& step) override;

 private:
  RowSet CertainPositions(const StepInput& step) const;
  // The length of the blocks to which the search is rounded up.
  size_t SearchBlock(const StepInput& step) const;
  std::vector<double> Density(const StepInput& step) const;
  // Of the rows not chosen yet, those with most importance.
  RowSet AttendedRows(const StepInput& step, const RowSet& chosen) const;
  std::vector<double> RolloutImportance() const;
  RowSet FillGaps(const RowSet& rows) const;

  D2Options options_;
  size_t num_rows_ = 0;
  std::vector<Mat<float>> weights_;  // per layer [computed_, num_rows]
  RowSet computed_;                  // rows of the last step
  std::vector<float> confidence_;    // per position, latest; -1: none yet
};

std::vector<OptionInfo> D2OptionTable();
PolicyFactory MakeD2(OptionReader& options, const PolicyContext& context);

}  // namespace spa
