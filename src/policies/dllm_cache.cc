#include "policies/dllm_cache.h"

#include "kernels/rows.h"

namespace spa {

RowSet DllmPolicy::BeginStep(const StepInput& step) {
  all_ = step.visible;
  prompt_ = all_.Between(0, step.prompt_length);
  gen_ = all_.Between(step.prompt_length, step.num_rows());
  refresh_prompt_ = step.step % options_.prompt_interval == 0;
  refresh_gen_ = step.step % options_.gen_interval == 0;
  return all_;
}

LayerPlan DllmPolicy::PlanLayer(LayerView& view) {
  const bool first = view.layer == 0;
  const RowSet prompt = first || refresh_prompt_ ? prompt_ : RowSet();
  if (first || refresh_gen_ || options_.rho == 0.0) {
    const RowSet rows = first || refresh_gen_ ? prompt.Union(gen_) : prompt;
    return {.k_rows = rows, .v_rows = rows, .out_rows = rows, .live = all_};
  }
  const RowSet valued = prompt.Union(gen_);
  const RowSet rows =
      prompt.Union(Select(view, view.Values(valued).Rows(prompt.size(), gen_.size())));
  return {.k_rows = rows, .v_rows = valued, .out_rows = rows, .live = all_};
}

RowSet DllmPolicy::Select(LayerView& view, MatView<const float> values) {
  // Every step stores the values of all these rows, so the cache holds those of the step before.
  previous_.Resize(gen_.size(), values.cols);
  for (size_t i = 0; i < gen_.size(); ++i) view.kv->LoadValue(gen_[i], previous_.Row(i));
  std::vector<float> similarity(gen_.size());
  CosineRows(values, previous_.View(), RowSet::All(gen_.size()), similarity, *view.pool);
  // Rows that became visible in this step have nothing to be compared with.
  for (const uint32_t place : gen_.PlacesOf(gen_.Intersect(view.step->never_computed))) {
    similarity[place] = -1.0f;
  }
  const auto count = static_cast<size_t>(options_.rho * static_cast<double>(gen_.size()));
  return gen_.At(SmallestK(similarity, count));
}

std::vector<OptionInfo> DllmOptionTable() {
  return {
      OptionInfo::Count("prompt-interval", 1, 1 << 20, "50, Dream 25",
                        "Recompute the prompt every this many steps"),
      OptionInfo::Count("gen-interval", 1, 1 << 20, "7, Dream 2",
                        "Recompute the answer every this many steps"),
      OptionInfo::Number("rho", 0, 1, "0.25", "Share of the answer recomputed in other steps"),
  };
}

PolicyFactory MakeDllm(OptionReader& reader, const PolicyContext& context) {
  const CacheDefaults& published = context.file->config().cache;
  DllmOptions options;
  options.prompt_interval = reader.Count("prompt-interval", published.dllm_prompt_interval);
  options.gen_interval = reader.Count("gen-interval", published.dllm_gen_interval);
  options.rho = reader.Number("rho", options.rho);
  return [options] { return std::make_unique<DllmPolicy>(options); };
}

}  // namespace spa
