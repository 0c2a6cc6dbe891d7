#include "lab/race.h"

#include <chrono>

#include "base/error.h"
#include "base/random.h"
#include "engine/runner.h"

namespace spa {
namespace {

std::vector<TokenId> RandomText(size_t tokens) {
  std::vector<TokenId> text(tokens);
  for (size_t i = 0; i < tokens; ++i) {
    text[i] = static_cast<TokenId>(RandomStream(7, 0, i).Bits(0) % 256);
  }
  return text;
}

DecodeOptions CourseOptions(const Engine& engine, const RaceCourse& course, size_t per_step) {
  DecodeOptions options = engine.DefaultDecodeOptions();
  options.schedule = Schedule::kEvenSplit;
  options.threshold.reset();
  options.edit_threshold.reset();
  options.gen_length = course.answer;
  options.block_length = course.block;
  options.steps_per_block = (course.block + per_step - 1) / per_step;
  options.window = course.window;
  options.stop = Stop::kNever;
  return options;
}

// Seconds of each step up to the end of block `last`, counted from 0.
std::vector<double> RunBlocks(Runner& runner, Generation& generation, size_t block, size_t last) {
  std::vector<double> seconds;
  const Decoder& decoder = generation.decoder();
  const size_t end = decoder.prompt_length() + (last + 1) * block;
  while (!generation.done() && decoder.block().begin < end) {
    const auto start = std::chrono::steady_clock::now();
    runner.Step();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return seconds;
}

double Sum(std::span<const double> values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum;
}

// Seconds of the last block, where all blocks but the last two are given. The first of these holds
// the step that computes the canvas.
double LastBlockSeconds(Runner& runner, GenerationRequest request, TokenId mask, size_t block,
                        size_t num_blocks) {
  Given& given = request.given;
  given.canvas.ids = RandomText((num_blocks - 2) * block);
  given.canvas.ids.resize(num_blocks * block, mask);
  const size_t per_block = request.decode.steps_per_block;
  Generation& generation = runner.Add(std::move(request));
  const std::vector<double> seconds = RunBlocks(runner, generation, block, num_blocks - 1);
  runner.Remove(generation);
  return Sum(std::span<const double>(seconds).subspan(per_block));
}

}  // namespace

std::vector<RaceResult> MeasureRace(Engine& engine, const SharedCache& cache,
                                    const RaceCourse& course, std::span<const size_t> rates) {
  if (course.block == 0 || course.answer % course.block != 0) {
    throw Error("an answer of {} tokens is not a multiple of the block length {}", course.answer,
                course.block);
  }
  const std::vector<TokenId> prompt = RandomText(course.prompt);
  const size_t num_blocks = course.answer / course.block;
  Runner runner(engine);
  std::unique_ptr<Generation> donor;  // has run the first step, which is the same at every rate
  double first_step = 0.0;
  std::vector<RaceResult> results;
  for (const size_t per_step : rates) {
    const DecodeOptions options = CourseOptions(engine, course, per_step);
    RaceResult result{.per_step = per_step, .steps = num_blocks * options.steps_per_block};
    if (!course.whole && donor == nullptr) {
      Generation& first = runner.Add({prompt, options, cache});
      runner.Step();
      first_step = first.times().first_step_seconds;
      donor = runner.Remove(first);
      if (!donor->state().keeps().warm_start) {
        throw Error("the cache {} cannot start warm: use spa, or run the whole answer",
                    cache->spec.name);
      }
    }
    Generation& generation = runner.Add({prompt, options, cache, donor.get()});
    const std::vector<double> seconds =
        RunBlocks(runner, generation, course.block, course.whole ? num_blocks - 1 : 1);
    const std::span<const double> steps(seconds);
    const size_t per_block = options.steps_per_block;
    if (course.whole) first_step = seconds.front();
    result.first_step_seconds = first_step;
    result.first_block_seconds = first_step + Sum(steps.subspan(1, per_block - 1));
    double later = Sum(steps.subspan(per_block));
    result.cache_bytes = generation.cache_bytes();
    runner.Remove(generation);
    if (!course.whole) {
      double last = later;
      if (num_blocks > 2 && !options.block_attention) {
        last = LastBlockSeconds(runner, {prompt, options, cache, donor.get()},
                                engine.config().mask_id, course.block, num_blocks);
      }
      later = static_cast<double>(num_blocks - 1) * (later + last) / 2.0;
      result.last_block_seconds = last;
    }
    result.answer_seconds = result.first_block_seconds + later;
    results.push_back(result);
  }
  return results;
}

}  // namespace spa
