// A custom cache: everything when a block begins, then the block alone.
#include <cstdio>

#include "spa/spa.h"

static std::vector<uint32_t> rows;  // of the step
static int Rows(spa_rows* out) { return *out = {rows.data(), rows.size()}, 0; }
static int BeginStep(void*, const spa_step* step, spa_rows* out) {
  rows.clear();
  for (size_t row = 0; row < step->num_rows; ++row) {
    const bool in_block = row >= step->block_begin && row < step->block_end;
    if (in_block || step->step_in_block == 0) rows.push_back(row);
  }
  return Rows(out);
}
static int PlanLayer(void*, const spa_layer*, spa_rows* out) { return Rows(out); }

int main() {
  const spa_policy policy = {sizeof(policy), nullptr,   SPA_REUSE_NOTHING, nullptr,
                             nullptr,        BeginStep, PlanLayer,         nullptr};
  const auto answer = spa::Model::Load()->Ask("not ( True and False ) is", {.policy = &policy});
  std::puts(answer->text.c_str());
}
