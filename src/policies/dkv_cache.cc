#include "policies/dkv_cache.h"

namespace spa {

RowSet DkvDecodePolicy::ChooseRows(const StepInput& step) {
  const size_t prompt_end = step.prompt_length - (options_.logit_shift ? 1 : 0);
  const RowSet prompt = RowSet::Range(0, prompt_end);
  // Without a shift the authors start anew with every block, and begin to keep rows after its
  // second step.
  const size_t count = options_.logit_shift ? step.step : step.step_in_block;
  const bool refresh =
      count % options_.interval == 0 || (!options_.logit_shift && count == 1);
  if (refresh) {
    return RowSet::Range(options_.freeze_prompt ? prompt_end : 0, step.num_rows());
  }
  const RowSet open = MaskedRows(step).Union(CommittedRows(step));  // before the previous step
  if (!options_.logit_shift) return open;
  RowSet frozen = step.step == 1 ? prompt : Frozen(step, open);
  if (options_.freeze_prompt) frozen = frozen.Union(prompt);
  return RowSet::All(step.num_rows()).Without(frozen);
}

RowSet DkvDecodePolicy::Frozen(const StepInput& step, const RowSet& open) const {
  const auto known = [&](size_t row) { return row >= step.num_rows() || !open.Contains(row); };
  std::vector<uint32_t> rows;
  for (size_t row = 0; row < step.num_rows(); ++row) {
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
  const size_t num_rows = step.num_rows();
  for (size_t distance = 1; distance < num_rows && count > 0; ++distance) {
    for (const size_t row : {position - distance, position + distance}) {  // wraps below 0
      if (row >= num_rows || !step.masked[row] || rows[row] || count == 0) continue;
      rows[row] = 1;
      --count;
    }
  }
}

}  // namespace

RowSet DkvGreedyPolicy::ChooseRows(const StepInput& step) {
  if (step.step_in_block % options_.interval == 0) return RowSet::All(step.num_rows());
  std::vector<uint8_t> chosen(step.num_rows(), 0);
  std::vector<uint32_t> next;  // positions about to be settled
  for (const uint32_t row : step.wanted) next.push_back(row + (options_.logit_shift ? 1 : 0));
  for (const uint32_t row : step.committed) chosen[row] = 1;
  for (const uint32_t row : step.wanted) chosen[row] = 1;
  for (const uint32_t position : next) chosen[position] = 1;
  for (const uint32_t position : next) AddWindow(step, position, options_.window, chosen);
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < chosen.size(); ++row) {
    if (chosen[row]) rows.push_back(row);
  }
  return RowSet(std::move(rows));
}

PolicyFactory MakeDkvDecode(OptionReader& reader, const PolicyContext& context) {
  DkvDecodeOptions options;
  options.logit_shift = context.file->config().logit_shift;
  options.interval = reader.Count("interval", context.file->config().cache.dkv_interval, 1, 1 << 20);
  options.freeze_prompt = reader.Flag("freeze-prompt", false);
  options.shift = static_cast<DkvShift>(reader.Choice("shift", 0, {"un", "un-right", "right"}));
  return [options] { return std::make_unique<DkvDecodePolicy>(options); };
}

PolicyFactory MakeDkvGreedy(OptionReader& reader, const PolicyContext& context) {
  DkvGreedyOptions options;
  options.logit_shift = context.file->config().logit_shift;
  options.interval = reader.Count("interval", options.interval, 1, 1 << 20);
  options.window = reader.Count("window", options.window, 0, 1 << 20);
  return [options] { return std::make_unique<DkvGreedyPolicy>(options); };
}

}  // namespace spa
