#include "policies/spa.h"

#include <algorithm>
#include <numeric>

#include "base/atomic_file.h"
#include "base/error.h"
#include "kernels/rows.h"
#include "policies/spa_profile.h"

namespace spa {
namespace {

// Two identical vectors have a cosine within rounding of 1: such rows count as unchanged.
constexpr float kUnchanged = 1.0f - 1e-6f;
constexpr TokenId kNoToken = -1;

}  // namespace

RowSet SpaPolicy::BeginStep(const StepInput& step) {
  const SpaOptions& options = model_->options;
  step_ = step.step;
  const auto due = [&](size_t every) { return every > 0 && step_ % every == 0; };
  const bool full = step_ <= options.warmup || due(options.refresh_prompt);
  refresh_ = full || due(options.refresh_gen) ||
             (options.refresh_drift > 0.0 && drift_left_behind_ > options.refresh_drift);
  if (refresh_) drift_left_behind_ = 0.0;
  size_t first = 0;
  if (step_ == 0) {
    // Nothing to do for what another sequence has computed, of these tokens: what it settled in
    // its last step it never computed.
    while (first < warm_rows_ && ids_[first] == step.ids[first]) ++first;
  } else if (!full && options.scope != Scope::kAll) {
    first = step.prompt_length;
  }
  // A shifted model predicts the first position from the last prompt row: it must stay alive.
  if (!step.wanted.empty()) first = std::min<size_t>(first, step.wanted[0]);
  const bool to_block = options.scope == Scope::kReach && !refresh_;
  scope_ = RowSet::Range(first, to_block ? step.block_end : step.num_rows());
  ids_.resize(step.num_rows(), kNoToken);
  std::vector<uint32_t> changed;
  for (const uint32_t row : scope_) {
    if (ids_[row] == step.ids[row]) continue;
    ids_[row] = step.ids[row];
    changed.push_back(row);
  }
  changed_ = RowSet(std::move(changed));
  return scope_;
}

bool SpaPolicy::AdoptPrefix(const CachePolicy& donor, size_t num_rows) {
  const auto* other = dynamic_cast<const SpaPolicy*>(&donor);
  if (other == nullptr || other->model_ != model_ || other->layers_.empty()) return false;
  layers_.resize(other->layers_.size());
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    layers_[layer].adopted.Resize(num_rows, other->layers_[layer].proxies.cols());
    std::copy_n(other->layers_[layer].proxies.data(), num_rows * layers_[layer].adopted.cols(),
                layers_[layer].adopted.data());
  }
  ids_.assign(other->ids_.begin(), other->ids_.begin() + static_cast<ptrdiff_t>(num_rows));
  warm_rows_ = num_rows;
  return true;
}

LayerPlan SpaPolicy::PlanLayer(LayerView& view) {
  if (layers_.empty()) layers_.resize(view.config->num_layers);
  if (ByAttention(view.layer)) {
    // Queries, keys and values of the first layer depend on their own token alone.
    const RowSet& rows = view.layer == 0 ? changed_ : scope_;
    LayerPlan plan{.k_rows = rows, .v_rows = rows, .out_rows = scope_, .live = scope_};
    plan.attention_first = true;
    if (view.layer == 0) plan.new_queries = rows;
    return plan;
  }
  const RowSet rows = Update(view.layer, *view.step, Identify(view), *view.pool);
  const RowSet& kv = model_->options.full_kv ? scope_ : rows;
  if (OnlyReadersMatter(view.layer)) {
    const RowSet& read = view.step->wanted;
    return {.k_rows = kv.Union(read), .v_rows = kv.Union(read), .out_rows = read, .live = read};
  }
  return {.k_rows = kv, .v_rows = kv, .out_rows = rows, .live = scope_};
}

RowSet SpaPolicy::ChooseRows(const AttentionView& view) {
  const RowSet rows = Update(view.layer, *view.step, view.heads, *view.pool);
  return OnlyReadersMatter(view.layer) ? view.step->wanted : rows;
}

bool SpaPolicy::ByAttention(size_t layer) const {
  const SpaOptions& options = model_->options;
  return options.identifier == Identifier::kAttnOutput ||
         (layer == 0 && options.first_layer == FirstLayer::kAttention);
}

RowSet SpaPolicy::Update(size_t layer, const StepInput& step, MatView<const float> proxies,
                         ThreadPool& pool) {
  const SpaOptions& options = model_->options;
  LayerState& state = layers_[layer];
  if (state.proxies.rows() == 0) {
    state.proxies.Resize(step.num_rows(), proxies.cols);
    state.computed.assign(step.num_rows(), 0);
    std::copy_n(state.adopted.data(), warm_rows_ * proxies.cols, state.proxies.data());
    state.adopted = {};
  }
  const bool dense = refresh_ || (layer == 0 && options.first_layer == FirstLayer::kDense);
  RowSet rows = dense ? scope_ : Select(layer, step, proxies, pool);
  if (dense || options.overwrite_proxy) {
    ScatterRows(proxies, scope_, state.proxies.View(), pool);
  } else {
    for (const uint32_t row : rows) {
      std::copy_n(proxies.Row(row - scope_[0]), proxies.cols, state.proxies.Row(row));
    }
  }
  for (const uint32_t row : rows) state.computed[row] = static_cast<uint32_t>(step_);
  return rows;
}

RowSet SpaPolicy::Select(size_t layer, const StepInput& step, MatView<const float> proxies,
                         ThreadPool& pool) {
  const SpaOptions& options = model_->options;
  const LayerState& state = layers_[layer];
  std::vector<float> similarity(scope_.size());
  CosineRows(proxies, state.proxies.View(), scope_, similarity, pool);
  // The budget is a share of all rows that will ever compete, so that the first blocks do not
  // starve.
  const size_t num_rows =
      options.scope == Scope::kReach ? step.num_rows() - step.prompt_length : scope_.size();
  size_t count = BudgetRows(options.ratios[layer], num_rows);
  if (options.per_token) count *= std::max<size_t>(1, step.committed.size());
  count = std::min(count, scope_.size());
  // A block that begins was left alone until now: all of it is read.
  const bool begins = options.scope == Scope::kReach && step.step_in_block == 0;
  std::vector<float> rank = similarity;
  if (options.focus || begins) {
    const size_t in_focus = MoveFocusFirst(step, rank);
    if (begins) count = std::max(count, in_focus);
  }
  if (options.drift < 1.0) {
    const auto drifted = static_cast<size_t>(std::ranges::count_if(
        similarity, [&](float s) { return !(s > static_cast<float>(options.drift)); }));
    count = std::clamp<size_t>(drifted, 1, count);
  }
  std::vector<uint32_t> places;
  if (options.stale_first) {
    places.resize(scope_.size());
    std::iota(places.begin(), places.end(), 0u);
    const auto key = [&](uint32_t place) {
      const float s = rank[place];
      return std::tuple(s > kUnchanged ? 1.0f : s, state.computed[scope_[place]], place);
    };
    std::ranges::nth_element(places, places.begin() + static_cast<ptrdiff_t>(count - 1),
                             [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    places.resize(count);
  } else {
    places = SmallestK(rank, count);
  }
  if (options.refresh_drift > 0.0) {
    double left = 0.0;
    for (const float s : similarity) left += 1.0 - s;
    for (const uint32_t place : places) left -= 1.0 - similarity[place];
    drift_left_behind_ += left / static_cast<double>(scope_.size() * layers_.size());
  }
  return scope_.At(places);
}

size_t SpaPolicy::MoveFocusFirst(const StepInput& step, std::vector<float>& rank) const {
  constexpr float kFirst = 4.0f;  // cosines are in [-1, 1]
  size_t count = 0;
  const RowSet settled(std::vector<uint32_t>(step.committed.begin(), step.committed.end()));
  for (const uint32_t row : step.wanted.Union(settled).Intersect(scope_)) {
    float& s = rank[row - scope_[0]];
    if (s > kUnchanged || s > static_cast<float>(model_->options.drift)) continue;
    s -= kFirst;
    ++count;
  }
  return count;
}

MatView<const float> SpaPolicy::Identify(LayerView& view) {
  const LayerWeights& weights = *view.weights;
  const auto project = [&](MatView<const float> x, const PackedMatrix& w,
                           const std::vector<float>& bias) {
    identified_.Resize(x.rows, w.rows());
    input_.Set(x);
    MatMul(input_, w, identified_.View(), *view.pool, bias.empty() ? nullptr : bias.data());
    return MatView<const float>(identified_.View());
  };
  switch (model_->options.identifier) {
    case Identifier::kSingular:
      // The cosine does not see the RMS norm's division, and its gain is in the projection: the
      // rows are used as they are.
      return project(view.x.Rows(scope_[0], scope_.size()), model_->projections[view.layer], {});
    case Identifier::kValue:
      return view.Values(scope_);
    case Identifier::kKey:
      return project(view.Normed(scope_), weights.wk, weights.bk);
    case Identifier::kQuery:
      return project(view.Normed(scope_), weights.wq, weights.bq);
    case Identifier::kAttnInput:
      return view.Normed(scope_);
    case Identifier::kAttnOutput:
      break;  // ByAttention
  }
  SPA_CHECK(false);
  return {};
}

size_t SpaPolicy::bytes() const {
  size_t bytes = ids_.size() * sizeof(TokenId);
  for (const LayerState& layer : layers_) {
    bytes += layer.proxies.bytes() + layer.computed.size() * sizeof(uint32_t);
  }
  return bytes;
}

namespace {

enum class Preset { kDefault, kPaper, kReference };

}  // namespace

PolicyFactory MakeSpa(OptionReader& reader, const PolicyContext& context) {
  const ModelConfig& config = context.file->config();
  const auto preset =
      static_cast<Preset>(reader.Choice("preset", 0, {"default", "paper", "reference"}));
  std::vector<std::string> tasks;
  for (const SpaTask& task : config.cache.spa_tasks) tasks.emplace_back(task.name);
  const SpaTask& task = config.cache.spa_tasks[reader.Choice("task", 0, tasks)];
  const bool reference = preset == Preset::kReference, paper = preset == Preset::kPaper;

  auto model = std::make_shared<SpaModel>();
  SpaOptions& o = model->options;
  o.identifier = static_cast<Identifier>(reader.Choice(
      "identifier", 0, {"singular", "value", "key", "query", "attn-input", "attn-output"}));
  o.rank = reader.Count("rank", DefaultProxyRank(config), 1, MaxProxyRank(config));
  o.form = reader.Choice("form", 0, {"delta", "absolute"}) == 0 ? Reuse::kDelta : Reuse::kOutput;
  const bool ours = preset == Preset::kDefault;
  o.scope = static_cast<Scope>(reader.Choice(
      "scope", static_cast<size_t>(ours ? Scope::kReach : paper ? Scope::kAll : Scope::kGen),
      {"gen", "all", "reach"}));
  o.overwrite_proxy = reader.Choice("proxy", reference ? 1 : 0, {"scatter", "overwrite"}) == 1;
  o.full_kv = reader.Choice("kv", reference ? 1 : 0, {"sparse", "full"}) == 1;
  o.first_layer =
      static_cast<FirstLayer>(reader.Choice("first-layer",
                                            static_cast<size_t>(ours    ? FirstLayer::kAttention
                                                                : paper ? FirstLayer::kProxy
                                                                        : FirstLayer::kDense),
                                            {"attention", "dense", "proxy"}));
  o.warmup = reader.Count("warmup", reference ? config.cache.spa_reference_warmup : 0, 0, 1 << 20);
  o.refresh_prompt = reader.Count("refresh-prompt", paper ? 0 : task.prompt_interval, 0, 1 << 20);
  o.refresh_gen = reader.Count("refresh-gen", reference ? task.gen_interval : 0, 0, 1 << 20);
  o.drift = reader.Number("drift", 1.0, 0.0, 1.0);
  o.refresh_drift = reader.Number("refresh-drift", 0.0, 0.0, 1e9);
  o.stale_first = reader.Flag("stale-first", false);
  o.focus = reader.Flag("focus", ours);
  o.per_token = reader.Flag("per-token", ours);

  constexpr double kLeast = 1e-4;
  // A measured profile of the model gives the shape of the bell. How much is spent stays the
  // published peak: at the paper's tau a model that drifts little would get next to nothing, and on
  // the embedded model that costs accuracy. The other presets keep their own numbers.
  Budget budget = ChooseBudget(reader, *context.file, ours);
  const auto uniform = reader.OptionalNumber("rho", kLeast, 1.0);
  const double floor = reader.Number(
      "rho-min", reference ? task.floor_ratio : 0.0, 0.0, 1.0);
  // The authors' Dream scripts scale the published peak of 0.30 to 0.25.
  const double peak = reader.Number(
      "rho-peak", reference ? 0.25 : PublishedBudget(config).peak_ratio, kLeast, 1.0);
  const double scale = peak / budget.peak_ratio;  // the edges follow the peak unless given
  budget.first_ratio = reader.Number("rho-first", std::max(kLeast, budget.first_ratio * scale), kLeast, 1.0);
  budget.last_ratio = reader.Number("rho-last", std::max(kLeast, budget.last_ratio * scale), kLeast, 1.0);
  budget.peak_layer = reader.Number("peak-layer", budget.peak_layer, 1.0,
                                    static_cast<double>(config.num_layers));
  budget.peak_ratio = peak;
  if (uniform) {
    o.ratios.assign(config.num_layers, *uniform);
    // All rows at every step is all rows, whatever the scope: exactly the uncached model.
    if (*uniform == 1.0) o.refresh_prompt = 1;
  } else if (reference) {
    o.ratios = ReferenceBudgetRatios(budget, peak, floor, config.num_layers);
  } else {
    o.ratios = BudgetRatios(budget, config.num_layers);
    for (double& ratio : o.ratios) ratio = std::max(ratio, floor);
  }
  for (double& ratio : o.ratios) ratio = std::min(ratio, 1.0);
  if (o.first_layer == FirstLayer::kAttention) o.ratios[0] = std::ranges::max(o.ratios);
  reader.Finish();  // before the proxies: a wrong option should not cost a minute

  if (o.identifier == Identifier::kSingular) {
    if (config.num_layers * config.kv_dim() * config.model_dim > context.max_proxy_weights &&
        !FileExists(ProxyPath(*context.file, o.rank))) {
      throw Error("the singular proxies of rank {} would have to be computed first: "
                  "`spa proxy --rank {}` does it", o.rank, o.rank);
    }
    const Proxies proxies =
        LoadOrComputeProxies(*context.file, o.rank, *context.pool, [&](double share) {
          if (context.progress) context.progress("singular proxies", share);
        });
    for (size_t layer = 0; layer < config.num_layers; ++layer) {
      const Mat<float>& projection = proxies.layers[layer].projection;
      const std::vector<float>& gain = context.weights->layers[layer].attn_norm;
      Mat<float> folded(projection.rows(), projection.cols());
      for (size_t i = 0; i < folded.rows(); ++i) {
        for (size_t j = 0; j < folded.cols(); ++j) {
          folded.Row(i)[j] = projection.Row(i)[j] * gain[j];
        }
      }
      model->projections.emplace_back(
          MatrixSource{.dtype = DType::kF32,
                       .rows = folded.rows(),
                       .cols = folded.cols(),
                       .data = reinterpret_cast<const std::byte*>(folded.data())},
          *context.pool);
    }
  }
  return [model] { return std::make_unique<SpaPolicy>(model); };
}

}  // namespace spa
