// A whole answer at a given rate of settled tokens per step. Random weights cannot show how many
// tokens a step may settle, so the rate is given; the times are measured.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace spa {

struct RaceCourse {
  size_t prompt = 1024;
  size_t answer = 256;
  size_t block = 32;
  std::optional<size_t> window = {};  // masks after the block that take part; nothing: all
  // False: the first step, the first two blocks and the last are run, and the rest is computed:
  // answer = first step + rest of the first block + (blocks - 1) x mean of the second and the last.
  // Blocks in between cost about that much, since each adds its rows to those that compete.
  bool whole = false;
};

struct RaceResult {
  size_t per_step = 1;               // tokens a step settles, at most
  size_t steps = 0;                  // of the whole answer
  double first_step_seconds = 0.0;   // the prompt and the canvas
  double first_block_seconds = 0.0;  // the first step included
  double last_block_seconds = 0.0;   // 0: every step was run
  double answer_seconds = 0.0;
  size_t cache_bytes = 0;
};

// One result for each rate.
std::vector<RaceResult> MeasureRace(Engine& engine, const SharedCache& cache,
                                    const RaceCourse& course, std::span<const size_t> rates);

}  // namespace spa
