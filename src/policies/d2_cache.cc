#include "policies/d2_cache.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace spa {

RowSet D2Policy::RowsOfStep(const StepInput& step) {
  const RowSet chosen = step.RowsOf(CertainPositions(step)).Union(step.changed).Union(step.wanted);
  return FillGaps(chosen.Union(AttendedRows(step, chosen))).Intersect(step.visible);
}

RowSet D2Policy::CertainPositions(const StepInput& step) const {
  const std::vector<double> density = Density(step);
  // The search ends with the block in which the k-th open position lies.
  const size_t block = SearchBlock(step);
  const size_t origin = options_.compat ? step.prompt_length : step.block_begin;
  std::vector<uint32_t> open;
  size_t end = step.end();
  for (size_t pos = step.block_begin; pos < end; ++pos) {
    if (!step.masked[pos]) continue;
    open.push_back(static_cast<uint32_t>(pos));
    if (open.size() == options_.k) {
      const size_t blocks = (pos - origin) / block + 1;
      end = std::min(end, origin + blocks * block);
    }
  }
  const auto key = [&](uint32_t pos) {  // the block's positions go first
    const double confidence = pos < confidence_.size() ? std::max(confidence_[pos], 0.0f) : 0.0f;
    return std::tuple(pos >= step.block_end, -confidence * density[pos - step.prompt_length], pos);
  };
  std::ranges::sort(open, [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  open.resize(std::min(open.size(), options_.k));
  return RowSet(std::move(open));
}

size_t D2Policy::SearchBlock(const StepInput& step) const {
  if (!options_.compat) return step.block_end - step.block_begin;
  size_t open = step.changed.size();
  for (size_t pos = step.block_begin; step.step_in_block > 0 && pos < step.block_end; ++pos) {
    open += step.masked[pos];
  }
  return std::max<size_t>(open, 1);
}

std::vector<double> D2Policy::Density(const StepInput& step) const {
  const auto length = static_cast<ptrdiff_t>(step.end() - step.prompt_length);
  std::vector<double> density(static_cast<size_t>(length), 1.0);
  if (options_.sigma == 0.0) return density;
  std::vector<double> kernel(static_cast<size_t>(length));
  for (size_t x = 0; x < kernel.size(); ++x) {
    const double z = static_cast<double>(x) / options_.sigma;
    kernel[x] = std::exp(-0.5 * z * z);
  }
  // The prompt counts as settled, what follows the answer as the answer's last position.
  const auto known = [&](ptrdiff_t place) {
    const ptrdiff_t last = std::min(place, length - 1);
    return place < 0 || !step.masked[step.prompt_length + static_cast<size_t>(last)];
  };
  for (ptrdiff_t g = 0; g < length; ++g) {
    double sum = 0.0, norm = 0.0;
    for (ptrdiff_t x = 1 - length; x < length; ++x) {
      const double weight = kernel[static_cast<size_t>(std::abs(x))];
      norm += weight;
      if (known(g + x)) sum += weight;
    }
    density[static_cast<size_t>(g)] = sum / norm;
  }
  return density;
}

RowSet D2Policy::AttendedRows(const StepInput& step, const RowSet& chosen) const {
  const std::vector<double> importance = RolloutImportance();
  RowSet rest = step.visible.Without(chosen);
  if (rest.empty() || options_.p >= 1.0) return rest;
  std::vector<uint32_t> rows(rest.begin(), rest.end());
  std::ranges::sort(rows, [&](uint32_t a, uint32_t b) {
    return std::tuple(-importance[a], a) < std::tuple(-importance[b], b);
  });
  double total = 0.0;
  for (const uint32_t row : rows) total += importance[row];
  size_t count = 0;
  for (double sum = 0.0; count < rows.size(); ++count) {
    sum += importance[rows[count]] / total;
    if (sum > options_.p) break;
  }
  rows.resize(std::max<size_t>(count, 1));
  return RowSet(std::move(rows));
}

// Column sums of R = M_{L-1} ... M_0, where M_l = (A_l + I) / 2 on computed rows and I elsewhere.
// A row vector of ones goes through the product from the left, so no square matrix is formed.
std::vector<double> D2Policy::RolloutImportance() const {
  std::vector<double> importance(num_rows_, 1.0), change(num_rows_);
  for (size_t layer = weights_.size(); layer-- > 0;) {
    std::ranges::fill(change, 0.0);
    for (size_t i = 0; i < computed_.size(); ++i) {
      const double mass = importance[computed_[i]];
      const float* weights = weights_[layer].Row(i);
      for (size_t row = 0; row < num_rows_; ++row) change[row] += mass * weights[row];
      change[computed_[i]] -= mass;
    }
    for (size_t row = 0; row < num_rows_; ++row) importance[row] += change[row] / 2;
  }
  return importance;
}

RowSet D2Policy::FillGaps(const RowSet& rows) const {
  if (options_.inflate == 0) return rows;
  std::vector<uint32_t> filled(rows.begin(), rows.end());
  for (size_t i = 1; i < rows.size(); ++i) {
    if (rows[i] - rows[i - 1] > options_.inflate) continue;
    for (uint32_t row = rows[i - 1] + 1; row < rows[i]; ++row) filled.push_back(row);
  }
  return RowSet(std::move(filled));
}

std::optional<RowSet> D2Policy::AfterAttention(const AttentionView& view) {
  num_rows_ = view.mean_weights.cols;
  computed_ = *view.out_rows;
  if (view.layer >= weights_.size()) weights_.resize(view.layer + 1);
  Mat<float>& kept = weights_[view.layer];
  kept = Mat<float>(view.mean_weights.rows,
                    view.mean_weights.cols);  // drops the weights of the dense step
  for (size_t i = 0; i < kept.rows(); ++i) {
    std::copy_n(view.mean_weights.Row(i), kept.cols(), kept.Row(i));
  }
  return {};
}

void D2Policy::EndStep(std::span<const uint32_t> positions, std::span<const float> confidence) {
  confidence_.resize(num_rows_, -1.0f);
  for (size_t i = 0; i < positions.size(); ++i) {
    float& kept = confidence_[positions[i]];
    if (kept < 0.0f || !options_.compat) kept = confidence[i];
  }
}

size_t D2Policy::bytes() const {
  size_t bytes = confidence_.size() * sizeof(float);
  for (const Mat<float>& weights : weights_) bytes += weights.bytes();
  return bytes;
}

size_t D2Policy::BytesFor(const ModelConfig& config, size_t num_rows, size_t /*kept_rows*/) const {
  return (config.num_layers * num_rows + 1) * num_rows * sizeof(float);
}

std::vector<OptionInfo> D2OptionTable() {
  return {
      OptionInfo::Number(
          "p", 0, 1, "0.1",
          "Recompute the most attended rows up to this share of the attention rollout"),
      OptionInfo::Count("k", 1, 1 << 20, "32", "Open positions to recompute"),
      OptionInfo::Number("sigma", 0, 1e6, "10", "Width of the certainty density; 0: none"),
      OptionInfo::Count("inflate", 0, 1 << 20, "0",
                        "Fill gaps of up to this many rows between chosen rows"),
      OptionInfo::Flag("compat", "off",
                       "Reproduce two bugs of the authors' code: confidences stay those of the "
                       "first step, blocks shrink"),
  };
}

PolicyFactory MakeD2(OptionReader& reader, const PolicyContext&) {
  D2Options options;
  options.p = reader.Number("p", options.p);
  options.k = reader.Count("k", options.k);
  options.sigma = reader.Number("sigma", options.sigma);
  options.inflate = reader.Count("inflate", options.inflate);
  options.compat = reader.Flag("compat", false);
  return [options] { return std::make_unique<D2Policy>(options); };
}

}  // namespace spa
