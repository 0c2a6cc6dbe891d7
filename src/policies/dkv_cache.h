// dKV-Cache (The Cache for Diffusion Language Models, arXiv 2505.15781): a settled token is
// recomputed once with its real embedding in the step after, and its keys and values are kept from
// then on ("delayed caching"), until a periodic refresh of all rows.
//
// dkv-decode recomputes all open rows and those just settled. dkv-greedy recomputes only the rows
// about to be settled, those just settled and a window of open rows around the former; it is meant
// for the random order, whose next positions are known before the step (the decoder then wants only
// these rows). With any other order the rows about to be settled are all open ones of the block.
//
// Keeps per row and layer: K, V.
// Costs per layer: the whole layer for the rows named above; nothing to choose them.
// For models with a logit shift the authors' code keeps a row that is still open once its right
// neighbour is settled (shift=un): its keys and values stay those of a mask until the next
// refresh. Their greedy code walks the windows in the order of settling, here from the left; it
// draws the order of a block beforehand, the decoder draws it step by step.
#pragma once

#include "policies/registry.h"
#include "policies/step_rows.h"

namespace spa {

// When the delay of a row starts under a logit shift: when its right neighbour is settled, when
// both are, or when the row itself is.
enum class DkvShift { kRightNeighbour, kBoth, kOwn };

struct DkvDecodeOptions {
  size_t interval = 8;         // recompute all rows every this many steps; 4 with a logit shift
  bool freeze_prompt = false;  // refreshes leave the prompt out; the authors' "prefill" (interval
                               // 1) and "PD" variants
  DkvShift shift = DkvShift::kRightNeighbour;
  // The authors' LLaDA code restarts with every block and keeps rows from its second step on; their
  // Dream code counts the steps of the whole generation.
  bool by_block = true;
};

class DkvDecodePolicy : public OneSetPolicy {
 public:
  explicit DkvDecodePolicy(const DkvDecodeOptions& options) : options_(options) {}

 protected:
  RowSet RowsOfStep(const StepInput& step) override;

 private:
  RowSet Frozen(const StepInput& step, const RowSet& open) const;

  DkvDecodeOptions options_;
};

struct DkvGreedyOptions {
  size_t interval = 2;  // recompute all rows every this many steps of a block
  size_t window = 4;    // open rows recomputed around each row about to be settled
};

class DkvGreedyPolicy : public OneSetPolicy {
 public:
  explicit DkvGreedyPolicy(const DkvGreedyOptions& options) : options_(options) {}

 protected:
  RowSet RowsOfStep(const StepInput& step) override;

 private:
  DkvGreedyOptions options_;
};

std::vector<OptionInfo> DkvDecodeOptionTable();
std::vector<OptionInfo> DkvGreedyOptionTable();
PolicyFactory MakeDkvDecode(OptionReader& options, const PolicyContext& context);
PolicyFactory MakeDkvGreedy(OptionReader& options, const PolicyContext& context);

}  // namespace spa
