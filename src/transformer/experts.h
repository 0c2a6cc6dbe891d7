// The feed-forward network of a layer with experts. A router picks a few experts for each row; rows
// are grouped by expert, so that each expert is one product over its rows and the weights of unused
// experts are not read. A row's result does not depend on the rows beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/matrix.h"
#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "model/config.h"
#include "model/weights.h"

namespace spa {

// The experts each row is sent to, in ascending order, and the weights of their outputs.
struct Routing {
  std::vector<uint32_t> experts;  // [rows, used]
  std::vector<float> weights;     // [rows, used]
};

// logits: [rows, experts], the router's product with each row. bias may be empty.
// scales: factors of the experts' weights; may be empty.
Routing ChooseExperts(const ExpertConfig& config, MatView<const float> logits,
                      std::span<const float> bias, ThreadPool& pool,
                      std::span<const float> scales = {});

// gate[i] = activation(gate[i]) * up[i]
void Gate(Activation activation, MatView<float> gate, MatView<const float> up, ThreadPool& pool);

class ExpertStep {
 public:
  // An upper bound of the memory a step over `num_rows` rows takes; it is kept for the next step.
  static size_t WorkspaceBytes(const ExpertConfig& config, size_t model_dim, size_t num_rows);

  // y = the experts' output for the normed rows x.   x, y: [rows, model_dim]
  void Run(const ExpertConfig& config, const ExpertWeights& weights, MatView<const float> x,
           MatView<float> y, ThreadPool& pool) {
    Run(config, weights, x, x, y, pool);
  }
  // The same with separate rows for the router.   routed: [rows, model_dim]
  void Run(const ExpertConfig& config, const ExpertWeights& weights, MatView<const float> routed,
           MatView<const float> x, MatView<float> y, ThreadPool& pool);

 private:
  void RunSome(const ExpertConfig& config, const ExpertWeights& weights,
               MatView<const float> routed, MatView<const float> x, MatView<float> y,
               ThreadPool& pool);

  Activations rows_;    // x, for the router and the shared expert
  Mat<float> logits_;   // [rows, experts]
  Mat<float> grouped_;  // [rows * used, model_dim]: x, expert after expert
  Activations grouped_rows_;
  Mat<float> gate_, up_;  // [rows * used, expert_dim], or [rows, shared_dim]
  Activations gate_rows_;
  Mat<float> down_;  // [rows * used, model_dim]
};

}  // namespace spa
