#include "policies/spa.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "base/random.h"
#include "kernels/rows.h"
#include "policies/spa_budget.h"

namespace spa {
namespace {

// Two identical vectors have a cosine within rounding of 1: such rows count as unchanged.
constexpr float kUnchanged = 1.0f - 1e-6f;

// With kReach the budget is a share of at most so many blocks.
constexpr size_t kBudgetBlocks = 4;
// Room for a row that was just settled and for one that it changed.
constexpr size_t kLeastRows = 2;

// Rows outside of the block are quiet if fewer than this share of them moved; they then compete
// half as often, down to every kLongest intervals.
constexpr double kQuietShare = 1.0 / 64;
constexpr size_t kLongest = 8;

// Shorter blocks are decoded from left to right: they read what comes before them, and hardly what
// comes after.
constexpr size_t kShortBlock = 8;

bool IsRange(const RowSet& rows) {
  return rows.empty() || rows[rows.size() - 1] - rows[0] + 1 == rows.size();
}

size_t FirstOf(size_t first, const RowSet& a, const RowSet& b) {
  for (const RowSet* rows : {&a, &b}) {
    if (!rows->empty()) first = std::min<size_t>(first, (*rows)[0]);
  }
  return first;
}

}  // namespace

Keeps SpaPolicy::keeps() const {
  const size_t layers = options_.ratios.size() - (options_.focus ? 1 : 0);
  size_t query_layers = 0;
  while (query_layers < layers && ByAttention(query_layers)) ++query_layers;
  return {.reuse = options_.form,
          .reuse_in_last_layer = !options_.focus,
          // Without these, rows of the prompt are in scope only while all of it is refreshed.
          .reuse_in_prompt = options_.scope == Scope::kAll || options_.prompt,
          .query_layers = query_layers,
          .warm_start = true};
}

RowSet SpaPolicy::BeginStep(const StepInput& step) {
  step_ = step.step;
  confidence_.resize(step.num_rows(), 0.0f);
  const auto due = [&](size_t every) { return every > 0 && step_ % every == 0; };
  const bool full = step_ <= options_.warmup || due(options_.refresh_prompt);
  refresh_ = full || due(options_.refresh_gen);
  begins_ = options_.scope == Scope::kReach && step.step_in_block == 0;
  const bool is_short = step.block_end - step.block_begin < kShortBlock;
  const size_t interval = is_short ? 0 : options_.outside * intervals_;
  waited_ += std::max<size_t>(1, step.changed.size());
  const bool outside = interval > 0 && (begins_ || waited_ >= interval);
  size_t first = 0;
  if (step_ == 0) {
    // A prompt's tail in the first block sees the block, and moves with it.
    answer_begin_ = std::min(step.prompt_length, step.block_begin);
    // Rows adopted from another sequence are skipped, unless their token is new.
    if (!step.new_tokens.empty()) first = step.new_tokens[0];
  } else if (!full && options_.scope != Scope::kAll && !(options_.prompt && outside)) {
    first = answer_begin_;
  }
  // With shifted logits the last prompt row predicts the first position, so it must stay live.
  if (!step.wanted.empty()) first = std::min<size_t>(first, step.wanted[0]);
  size_t end = step.num_rows();
  if (options_.scope != Scope::kReach || refresh_ || outside) {
    waited_ = 0;
  } else {
    end = step.block_end;
    // With shifted logits the last row of a block belongs to the next one: a mask that nothing
    // reads.
    if (is_short && step.changed.Between(end - step.shift, end).empty()) end -= step.shift;
    // Rows just settled compete wherever they are.
    if (interval > 0) first = std::max(first, FirstOf(step.block_begin, step.wanted, step.changed));
  }
  outside_compared_ = outside_moved_ = 0;
  scope_ = step.visible.Between(first, end).Union(step.never_computed);
  if (Screens()) screen_.BeginStep(step);
  return scope_;
}

LayerPlan SpaPolicy::PlanLayer(LayerView& view) {
  if (ByAttention(view.layer)) {
    // A row whose input did not move keeps its query, key and value.
    if (view.layer == 0) moved_ = scope_.Intersect(view.step->new_tokens);
    const size_t changes = moved_.Union(view.step->never_computed).size();
    const bool screens = Screens() && !refresh_ && screen_.Pays(changes, scope_.size(), view);
    if (Screens() && !screens) screen_.Forget(view.layer);
    return {.k_rows = moved_,
            .v_rows = moved_,
            .out_rows = scope_,
            .live = scope_,
            .q_rows = moved_,
            .ask_before_attention = screens,
            .ask_after_attention = true};
  }
  compared_ = scope_;
  const RowSet rows = Update(view.layer, *view.step, Identify(view), *view.identifiers, *view.pool);
  const RowSet& kv = options_.full_kv ? scope_ : rows;
  return {.k_rows = kv, .v_rows = kv, .out_rows = rows, .live = scope_};
}

std::optional<RowSet> SpaPolicy::BeforeAttention(const KeysView& view) {
  return screen_.BeforeAttention(view);
}

std::optional<RowSet> SpaPolicy::AfterAttention(const AttentionView& view) {
  compared_ = *view.out_rows;
  RowSet rows = Update(view.layer, *view.step, view.heads, *view.identifiers, *view.pool);
  moved_ = moved_.Union(rows);
  if (Screens()) screen_.AfterAttention(view, rows);
  return rows;
}

void SpaPolicy::EndStep(std::span<const uint32_t> positions, std::span<const float> confidence) {
  if (waited_ == 0 && outside_compared_ > 0) {
    const bool quiet =
        static_cast<double>(outside_moved_) < kQuietShare * static_cast<double>(outside_compared_);
    intervals_ = quiet ? std::min(2 * intervals_, kLongest) : 1;
  }
  std::ranges::fill(confidence_, 0.0f);
  for (size_t i = 0; i < positions.size(); ++i) confidence_[positions[i]] = confidence[i];
}

bool SpaPolicy::ByAttention(size_t layer) const {
  return options_.identifier == Identifier::kAttnOutput ||
         (layer == 0 && options_.first_layer == FirstLayer::kAttention);
}

bool SpaPolicy::Screens() const {
  // Otherwise the drift of every row counts.
  return options_.identifier == Identifier::kAttnOutput && options_.min_drift > 0.0f &&
         !options_.overwrite_proxy && options_.screen;
}

RowSet SpaPolicy::Update(size_t layer, const StepInput& step, MatView<const float> now,
                         KeptRows& kept, ThreadPool& pool) {
  if (computed_.size() <= layer) computed_.resize(layer + 1);
  computed_[layer].resize(step.num_rows(), 0);
  const bool dense = refresh_ || (layer == 0 && options_.first_layer == FirstLayer::kDense);
  RowSet rows = dense ? compared_ : Select(layer, step, now, kept, pool);
  if (dense || options_.overwrite_proxy) {
    kept.Store(compared_, now, pool);
  } else {
    for (const uint32_t row : rows) kept.Store(row, now.Row(PlaceOf(row)));
  }
  for (const uint32_t row : rows) computed_[layer][row] = static_cast<uint32_t>(step_);
  return rows;
}

RowSet SpaPolicy::Select(size_t layer, const StepInput& step, MatView<const float> now,
                         const KeptRows& kept, ThreadPool& pool) {
  std::vector<float> similarity(compared_.size());
  kept.Cosines(compared_, now, similarity, pool);
  // Rows that became visible in this step have nothing to be compared with.
  for (const uint32_t row : step.never_computed) similarity[PlaceOf(row)] = -1.0f;
  std::vector<float> rank = Ranks(layer, step, similarity);
  size_t count = CountOf(layer, step);
  // When a block begins, no limit holds for its rows and those after it.
  if (options_.focus || begins_) {
    const size_t in_focus = MoveFocusFirst(step, rank);
    if (begins_) count = std::max(count, in_focus);
  }
  const auto is_outside = [&](uint32_t row) {
    const bool in_block = row >= step.block_begin && row < step.block_end;
    return !in_block && !step.changed.Contains(row);
  };
  std::vector<uint32_t> places;
  for (uint32_t place = 0; place < compared_.size(); ++place) {
    const bool competes = Competes(compared_[place], step, similarity[place]);
    if (competes) places.push_back(place);
    if (competes && is_outside(compared_[place])) ++outside_moved_;
  }
  outside_compared_ += static_cast<size_t>(std::ranges::count_if(scope_, is_outside));
  // Ties go to the row that has waited longest.
  const auto key = [&](uint32_t place) {
    return std::tuple(rank[place], computed_[layer][compared_[place]], place);
  };
  if (count < places.size()) {
    std::ranges::nth_element(places, places.begin() + static_cast<ptrdiff_t>(count),
                             [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    places.resize(count);
  }
  return compared_.At(places).Union(step.never_computed);
}

bool SpaPolicy::Competes(uint32_t row, const StepInput& step, float similarity) const {
  // The more tokens a step settles, the more moves, and the fewer steps there are for errors to add
  // up in.
  const auto tokens = static_cast<float>(std::max<size_t>(1, step.changed.size()));
  return options_.min_drift == 0.0f || similarity < 1.0f - tokens * options_.min_drift ||
         step.changed.Contains(row);
}

std::vector<float> SpaPolicy::Ranks(size_t layer, const StepInput& step,
                                    std::span<const float> similarity) const {
  std::vector<float> rank(similarity.begin(), similarity.end());
  for (size_t place = 0; place < rank.size(); ++place) {
    const uint32_t row = compared_[place];
    switch (options_.identifier) {
      case Identifier::kRandom:
        rank[place] = static_cast<float>(RandomStream(layer, step_, row).Uniform(0));
        break;
      case Identifier::kAge:
        rank[place] = 0.0f;  // all equal: the tie decides
        break;
      case Identifier::kLocal: {  // rows of the block, then by their distance from it
        const size_t before = row < step.block_begin ? step.block_begin - row : 0;
        const size_t after = row >= step.block_end ? row - step.block_end + 1 : 0;
        rank[place] = 1.0f - 1.0f / static_cast<float>(1 + before + after);
        break;
      }
      case Identifier::kChanged:
        rank[place] = rank[place] > kUnchanged ? 1.0f : 0.0f;
        break;
      default:
        if (rank[place] > kUnchanged) rank[place] = 1.0f;
    }
  }
  return rank;
}

size_t SpaPolicy::CountOf(size_t layer, const StepInput& step) const {
  const double ratio = options_.ratios[layer];
  size_t count = BudgetRows(ratio, scope_.size());
  // With kReach it is a share of the rows that will ever compete, so that the first blocks do not
  // starve, but of a few blocks at most: a longer canvas does not make a step change more rows.
  if (options_.scope == Scope::kReach && ratio < 1.0) {
    const size_t answer = step.visible.Between(answer_begin_, step.num_rows()).size();
    const size_t block = step.block_end - step.block_begin;
    count = std::max(kLeastRows, BudgetRows(ratio, std::min(answer, kBudgetBlocks * block)));
  }
  // A step that follows several settled tokens gets as many budgets.
  if (options_.per_token) count *= std::max<size_t>(1, step.changed.size());
  return std::min(count, scope_.size());
}

size_t SpaPolicy::MoveFocusFirst(const StepInput& step, std::vector<float>& rank) const {
  // All other ranks are in [-1, 1].
  constexpr float kChangedRank = -4.0f, kWantedRank = -2.0f;
  RowSet focus = step.wanted.Union(step.changed).Intersect(scope_);
  if (begins_) focus = focus.Union(scope_.Between(step.block_end, step.num_rows()));
  size_t count = focus.Intersect(screen_.moved_little()).size();
  for (const uint32_t row : focus.Intersect(compared_)) {
    float& r = rank[PlaceOf(row)];
    if (r > kUnchanged) continue;
    const uint32_t position = step.PositionOf(row);
    const float sure = position < confidence_.size() ? confidence_[position] : 0.0f;
    r = step.changed.Contains(row) ? kChangedRank : kWantedRank - sure;
    ++count;
  }
  return count;
}

size_t SpaPolicy::PlaceOf(uint32_t row) const {
  if (IsRange(compared_)) return row - compared_[0];
  return static_cast<size_t>(std::ranges::lower_bound(compared_, row) - compared_.begin());
}

MatView<const float> SpaPolicy::InputsInScope(MatView<const float> x, ThreadPool& pool) {
  if (IsRange(scope_)) return x.Rows(scope_[0], scope_.size());
  gathered_.Resize(scope_.size(), x.cols);
  GatherRows(x, scope_, gathered_.View(), pool);
  return gathered_.View();
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
  switch (options_.identifier) {
    case Identifier::kSingular:
      // No norm needed: the cosine ignores the RMS norm's division, and the projection includes its
      // gain.
      return project(InputsInScope(view.x, *view.pool), model_->projections[view.layer], {});
    case Identifier::kValue:
      return view.Values(scope_);
    case Identifier::kKey:
      return project(view.Normed(scope_), weights.wk, weights.bk);
    case Identifier::kQuery:
      return project(view.Normed(scope_), weights.wq, weights.bq);
    case Identifier::kAttnInput:
    case Identifier::kChanged:
    case Identifier::kRandom:
    case Identifier::kAge:
    case Identifier::kLocal:
      return view.Normed(scope_);
    case Identifier::kAttnOutput:
      break;  // ByAttention
  }
  SPA_CHECK(false);
  return {};
}

size_t SpaPolicy::bytes() const {
  size_t bytes = confidence_.size() * sizeof(float) + screen_.bytes();
  for (const auto& layer : computed_) bytes += layer.size() * sizeof(uint32_t);
  return bytes;
}

size_t SpaPolicy::BytesFor(const ModelConfig& config, size_t num_rows, size_t kept_rows) const {
  size_t bytes = num_rows * sizeof(float);
  if (Screens()) bytes += AttentionScreen::BytesFor(config, keeps().query_layers, kept_rows);
  for (size_t layer = 0; layer < options_.ratios.size(); ++layer) {
    if (ChoosesIn(layer)) bytes += num_rows * sizeof(uint32_t);
  }
  return bytes;
}

bool SpaPolicy::ChoosesIn(size_t layer) const {
  return layer + 1 < options_.ratios.size() || !options_.focus || !ByAttention(layer);
}

IdentifierShape SpaPolicy::IdentifierOf(const ModelConfig& config, size_t layer) const {
  if (!ChoosesIn(layer)) return {};
  // A half is near enough for a cosine: the rounding alone is a drift of 4e-8.
  if (ByAttention(layer)) return {.width = config.q_dim(layer), .type = KeptType::kF16};
  switch (options_.identifier) {
    case Identifier::kSingular:
      return {.width = model_->projections[layer].rows()};
    case Identifier::kValue:
    case Identifier::kKey:
      return {.width = config.kv_dim(layer)};
    case Identifier::kQuery:
      return {.width = config.q_dim(layer)};
    default:
      return {.width = config.model_dim};
  }
}

}  // namespace spa
