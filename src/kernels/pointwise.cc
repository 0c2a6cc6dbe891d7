#include "kernels/pointwise.h"

#include <cmath>

#include "kernels/reference.h"

namespace spa {

RopeTable::RopeTable(size_t num_positions, size_t head_dim, double theta)
    : cos_(num_positions, head_dim / 2), sin_(num_positions, head_dim / 2) {
  for (size_t j = 0; j < head_dim / 2; ++j) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
    for (size_t position = 0; position < num_positions; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      cos_.Row(position)[j] = static_cast<float>(std::cos(angle));
      sin_.Row(position)[j] = static_cast<float>(std::sin(angle));
    }
  }
}

void RmsNorm(MatView<const float> x, std::span<const uint32_t> rows, const float* gain,
             float epsilon, MatView<float> y, ThreadPool&) {
  reference::RmsNorm(x, rows, gain, epsilon, y);
}

void Rope(MatView<float> x, std::span<const uint32_t> positions, size_t head_dim,
          const RopeTable& table, ThreadPool&) {
  reference::Rope(x, positions, head_dim, table);
}

void SwiGlu(MatView<float> gate, MatView<const float> up, ThreadPool&) {
  reference::SwiGlu(gate, up);
}

}  // namespace spa
