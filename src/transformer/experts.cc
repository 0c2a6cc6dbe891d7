#include "transformer/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/pointwise.h"
#include "kernels/rows.h"

namespace spa {
namespace {

// Rows are repeated once per expert, so the widest matrices are computed this many rows at a time:
// 70 MB for LLaDA2-mini.
constexpr size_t kRows = 1024;

// The scores that rank experts and those that weigh them.   [experts] each
struct Scores {
  std::vector<float> rank, weigh;
};

void Score(const ExpertConfig& config, const float* logits, std::span<const float> bias,
           Scores& scores) {
  const size_t count = config.count;
  scores.weigh.resize(count);
  if (config.router == RouterKind::kSigmoid) {
    for (size_t e = 0; e < count; ++e) scores.weigh[e] = 1.0f / (1.0f + std::exp(-logits[e]));
  } else {
    const float largest = *std::max_element(logits, logits + count);
    float sum = 0.0f;
    for (size_t e = 0; e < count; ++e) {
      scores.weigh[e] = std::exp(logits[e] - largest);
      sum += scores.weigh[e];
    }
    for (size_t e = 0; e < count; ++e) scores.weigh[e] /= sum;
  }
  scores.rank = scores.weigh;
  for (size_t e = 0; e < bias.size(); ++e) scores.rank[e] += bias[e];
}

// The `count` best of `candidates`, ties to the lower index, in ascending order.
void KeepBest(const std::vector<float>& values, size_t count, std::vector<uint32_t>& candidates) {
  const auto better = [&](uint32_t a, uint32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  };
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(count),
                    candidates.end(), better);
  candidates.resize(count);
  std::ranges::sort(candidates);
}

std::vector<uint32_t> Indices(size_t count) {
  std::vector<uint32_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0u);
  return indices;
}

// Experts of the groups whose two best experts rank highest together.
std::vector<uint32_t> Competitors(const ExpertConfig& config, const std::vector<float>& rank) {
  if (config.groups_used == config.groups) return Indices(config.count);
  const size_t size = config.count / config.groups;
  std::vector<float> worth(config.groups);
  for (size_t g = 0; g < config.groups; ++g) {
    float first = -std::numeric_limits<float>::infinity(), second = first;
    for (size_t e = g * size; e < (g + 1) * size; ++e) {
      if (rank[e] > first) {
        second = first;
        first = rank[e];
      } else {
        second = std::max(second, rank[e]);
      }
    }
    worth[g] = first + second;
  }
  std::vector<uint32_t> groups = Indices(config.groups);
  KeepBest(worth, config.groups_used, groups);
  std::vector<uint32_t> experts;
  for (const uint32_t g : groups) {
    for (size_t e = g * size; e < (g + 1) * size; ++e) experts.push_back(static_cast<uint32_t>(e));
  }
  return experts;
}

}  // namespace

void Gate(Activation activation, MatView<float> gate, MatView<const float> up, ThreadPool& pool) {
  activation == Activation::kSilu ? SwiGlu(gate, up, pool) : GeGlu(gate, up, pool);
}

Routing ChooseExperts(const ExpertConfig& config, MatView<const float> logits,
                      std::span<const float> bias, ThreadPool& pool,
                      std::span<const float> scales) {
  const size_t used = config.used;
  Routing routing;
  routing.experts.resize(logits.rows * used);
  routing.weights.resize(logits.rows * used);
  std::vector<Scores> scratch(pool.num_threads());
  pool.ParallelFor(logits.rows, [&](size_t row, size_t thread) {
    Scores& scores = scratch[thread];
    Score(config, logits.Row(row), bias, scores);
    std::vector<uint32_t> chosen = Competitors(config, scores.rank);
    KeepBest(scores.rank, used, chosen);
    float sum = 0.0f;
    for (const uint32_t e : chosen) sum += scores.weigh[e];
    for (size_t i = 0; i < used; ++i) {
      float weight = scores.weigh[chosen[i]];
      if (config.renormalise) weight /= sum + 1e-20f;
      if (!scales.empty()) weight *= scales[chosen[i]];
      routing.experts[row * used + i] = chosen[i];
      routing.weights[row * used + i] = weight * static_cast<float>(config.scale);
    }
  });
  return routing;
}

size_t ExpertStep::WorkspaceBytes(const ExpertConfig& config, size_t model_dim, size_t num_rows) {
  const size_t rows = std::min(num_rows, kRows), grouped = rows * config.used;
  const size_t widest = std::max(grouped * config.dim, rows * config.shared_dim);
  const size_t floats = 2 * grouped * model_dim + 2 * widest + rows * config.count;
  // The int8 forms of x, of its groups and of the gates take less than two bytes per value; every
  // expert may pad a tile of four rows.
  const size_t int8 = rows * model_dim + (grouped + 3 * config.count) * (model_dim + config.dim) +
                      rows * config.shared_dim;
  const size_t routing = grouped * 4 * sizeof(uint32_t);
  return floats * sizeof(float) + 2 * int8 + routing;
}

void ExpertStep::Run(const ExpertConfig& config, const ExpertWeights& weights,
                     MatView<const float> routed, MatView<const float> x, MatView<float> y,
                     ThreadPool& pool) {
  const size_t num_parts = (x.rows + kRows - 1) / kRows;
  for (size_t part = 0; part < num_parts; ++part) {
    const size_t first = part * x.rows / num_parts;
    const size_t rows = (part + 1) * x.rows / num_parts - first;
    RunSome(config, weights, routed.Rows(first, rows), x.Rows(first, rows), y.Rows(first, rows),
            pool);
  }
}

void ExpertStep::RunSome(const ExpertConfig& config, const ExpertWeights& weights,
                         MatView<const float> routed, MatView<const float> x, MatView<float> y,
                         ThreadPool& pool) {
  const size_t used = config.used;
  rows_.Set(routed);
  logits_.Resize(x.rows, config.count);
  MatMul(rows_, weights.router, logits_.View(), pool);
  const Routing routing =
      ChooseExperts(config, logits_.View(), weights.router_bias, pool, weights.scales);

  // Rows of the same expert side by side, in the order of their rows.
  std::vector<uint32_t> rows_of_expert(config.count, 0);
  for (const uint32_t e : routing.experts) ++rows_of_expert[e];
  std::vector<uint32_t> next(config.count, 0);
  std::exclusive_scan(rows_of_expert.begin(), rows_of_expert.end(), next.begin(), 0u);
  std::vector<uint32_t> place(routing.experts.size());   // of each (row, choice) in the groups
  std::vector<uint32_t> source(routing.experts.size());  // row of each place
  for (size_t i = 0; i < place.size(); ++i) {
    place[i] = next[routing.experts[i]]++;
    source[place[i]] = static_cast<uint32_t>(i / used);
  }
  grouped_.Resize(source.size(), x.cols);
  GatherRows(x, source, grouped_.View(), pool);
  grouped_rows_.SetExperts(grouped_.View(), rows_of_expert);
  gate_.Resize(source.size(), config.dim);
  up_.Resize(source.size(), config.dim);
  MatMulExperts(grouped_rows_, weights.wgate, gate_.View(), pool);
  MatMulExperts(grouped_rows_, weights.wup, up_.View(), pool);
  Gate(config.activation, gate_.View(), up_.View(), pool);
  gate_rows_.SetExperts(gate_.View(), rows_of_expert);
  down_.Resize(source.size(), x.cols);
  MatMulExperts(gate_rows_, weights.wdown, down_.View(), pool);

  // A row's experts are summed in ascending order, so the sum does not depend on the grouping.
  pool.ParallelFor(x.rows, [&](size_t row) {
    float* out = y.Row(row);
    std::fill_n(out, y.cols, 0.0f);
    for (size_t i = row * used; i < (row + 1) * used; ++i) {
      const float* expert = down_.Row(place[i]);
      const float weight = routing.weights[i];
      for (size_t c = 0; c < y.cols; ++c) out[c] += weight * expert[c];
    }
  });
  if (config.shared_dim == 0) return;
  if (routed.data != x.data) rows_.Set(x);
  gate_.Resize(x.rows, config.shared_dim);
  up_.Resize(x.rows, config.shared_dim);
  MatMul(rows_, weights.shared_wgate, gate_.View(), pool);
  MatMul(rows_, weights.shared_wup, up_.View(), pool);
  Gate(config.activation, gate_.View(), up_.View(), pool);
  gate_rows_.Set(gate_.View());
  down_.Resize(x.rows, x.cols);
  MatMul(gate_rows_, weights.shared_wdown, down_.View(), pool);
  AddRows(down_.View(), y, pool);
}

}  // namespace spa
