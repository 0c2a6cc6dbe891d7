#include "policies/block_cache.h"

namespace spa {

RowSet BlockPolicy::BeginStep(const StepInput& step) {
  size_t begin = step.block_begin;
  if (refresh_ > 0 && step.step % refresh_ == 0) {
    begin = 0;
  } else if (step.step == 0) {
    // Everything except whole blocks adopted from another sequence.
    const size_t length = step.block_end - step.block_begin;
    const size_t first = step.new_tokens.empty() ? begin : step.new_tokens[0];
    while (begin > first) begin -= std::min(begin, length);
  } else if (block_begin_ < begin && !step.changed.Between(block_begin_, begin).empty()) {
    begin = block_begin_;  // its last tokens have not been computed yet
  } else if (parts_ && step.step_in_block > 0 && !step.masked[step.part_begin]) {
    rows_ = step.visible.Between(step.part_begin, step.part_end);
    return rows_;
  }
  block_begin_ = step.block_begin;
  rows_ = step.visible.Between(begin, step.num_rows());
  return rows_;
}

std::vector<OptionInfo> BlockOptionTable() {
  return {OptionInfo::Count("refresh", 0, 1 << 20, "0: never",
                            "Recompute everything every this many steps; has no effect on the "
                            "answer while the cache is exact"),
          OptionInfo::Flag("parts", "off",
                           "Compute only the rows of a block's part once its first position is "
                           "settled (Fast-dLLM v2); an approximation")};
}

PolicyFactory MakeBlock(OptionReader& reader, const PolicyContext&) {
  const size_t refresh = reader.Count("refresh", 0);
  const bool parts = reader.Flag("parts", false);
  return [refresh, parts] { return std::make_unique<BlockPolicy>(refresh, parts); };
}

}  // namespace spa
