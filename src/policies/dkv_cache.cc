#include "policies/dkv_cache.h"

namespace spa {

RowSet DkvDecodePolicy::RowsOfStep(const StepInput& step) {
  const size_t prompt_end = step.RowOf(static_cast<uint32_t>(step.prompt_length));
  const RowSet prompt = RowSet::Range(0, prompt_end);
  const size_t count = options_.by_block ? step.step_in_block : step.step;
  if (count % options_.interval == 0 || (options_.by_block && count == 1)) {
    return options_.freeze_prompt ? step.visible.Without(prompt) : step.visible;
  }
  RowSet open = step.OpenRows().Union(step.changed);  // before the previous step
  if (step.shift == 0) return open;
  RowSet frozen = step.step == 1 ? prompt : Frozen(step, open);
  if (options_.freeze_prompt) frozen = frozen.Union(prompt);
  return step.visible.Without(frozen);
}

RowSet DkvDecodePolicy::Frozen(const StepInput& step, const RowSet& open) const {
  const auto known = [&](size_t row) { return row >= step.end() || !open.Contains(row); };
  std::vector<uint32_t> rows;
  for (size_t row = 0; row < step.end(); ++row) {
    const bool own = known(row), right = known(row + 1);
    const bool frozen = options_.shift == DkvShift::kOwn    ? own
                        : options_.shift == DkvShift::kBoth ? own && right
                                                            : right;
    if (frozen) rows.push_back(static_cast<uint32_t>(row));
  }
  return RowSet(std::move(rows));
}

namespace {

// Adds to `rows` up to `count` open rows near `position`: nearest first, left before right.
void AddWindow(const StepInput& step, size_t position, size_t count, std::vector<uint8_t>& rows) {
  const size_t num_rows = step.end();
  for (size_t distance = 1; distance < num_rows && count > 0; ++distance) {
    for (const size_t row : {position - distance, position + distance}) {  // wraps below 0
      if (row >= num_rows || !step.masked[row] || rows[row] || count == 0) continue;
      rows[row] = 1;
      --count;
    }
  }
}

}  // namespace

RowSet DkvGreedyPolicy::RowsOfStep(const StepInput& step) {
  if (step.step_in_block % options_.interval == 0) return step.visible;
  std::vector<uint8_t> chosen(step.num_rows(), 0);
  std::vector<uint32_t> next;  // positions about to be settled
  for (const uint32_t row : step.wanted) next.push_back(step.PositionOf(row));
  for (const uint32_t row : step.changed) chosen[row] = 1;
  for (const uint32_t row : step.wanted) chosen[row] = 1;
  for (const uint32_t position : next) chosen[position] = 1;
  for (const uint32_t position : next) AddWindow(step, position, options_.window, chosen);
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < chosen.size(); ++row) {
    if (chosen[row]) rows.push_back(row);
  }
  return RowSet(std::move(rows)).Intersect(step.visible);
}

std::vector<OptionInfo> DkvDecodeOptionTable() {
  return {
      OptionInfo::Count("interval", 1, 1 << 20, "8, Dream 4",
                        "Recompute all rows every this many steps"),
      OptionInfo::Flag("freeze-prompt", "off", "Never recompute the prompt"),
      OptionInfo::Choice("shift", {"un", "un-right", "right"}, "un",
                         "With shifted logits: whose settling starts a row's delay"),
  };
}

std::vector<OptionInfo> DkvGreedyOptionTable() {
  return {
      OptionInfo::Count("interval", 1, 1 << 20, "2",
                        "Recompute all rows every this many steps of a block"),
      OptionInfo::Count("window", 0, 1 << 20, "4", "Open rows around each row about to be settled"),
  };
}

PolicyFactory MakeDkvDecode(OptionReader& reader, const PolicyContext& context) {
  DkvDecodeOptions options;
  const CacheDefaults& published = context.file->config().cache;
  options.by_block = published.dkv_by_block;
  options.interval = reader.Count("interval", published.dkv_interval);
  options.freeze_prompt = reader.Flag("freeze-prompt", false);
  options.shift = static_cast<DkvShift>(reader.Choice("shift", 0));
  return [options] { return std::make_unique<DkvDecodePolicy>(options); };
}

PolicyFactory MakeDkvGreedy(OptionReader& reader, const PolicyContext&) {
  DkvGreedyOptions options;
  options.interval = reader.Count("interval", options.interval);
  options.window = reader.Count("window", options.window);
  return [options] { return std::make_unique<DkvGreedyPolicy>(options); };
}

}  // namespace spa
