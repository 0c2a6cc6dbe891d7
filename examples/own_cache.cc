// A custom cache: everything when a block begins, then the block alone.
#include <cstdio>

#include "spa/spa.h"

static int BeginStep(void*, const spa_step* step, spa_rows* rows) {
  *rows = step->visible;  // without a window: all
  if (step->step_in_block == 0) return 0;
  rows->rows += step->block_begin;
  rows->count = step->block_end - step->block_begin;
  return 0;
}
static int PlanLayer(void*, const spa_layer* at, spa_rows* rows) { return *rows = at->live, 0; }

int main() {
  const spa_policy policy = {sizeof(policy), nullptr,   SPA_REUSE_NOTHING, nullptr,
                             nullptr,        BeginStep, PlanLayer,         nullptr};
  const auto answer = spa::Model::Load()->Ask("not ( True and False ) is", {.policy = &policy});
  std::puts(answer ? answer->text.c_str() : answer.error().c_str());
}
