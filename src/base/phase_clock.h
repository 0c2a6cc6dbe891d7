// Time per phase of a step. The transformer and the decoder mark the phase they are in; the clock
// charges the time since the last mark to the phase that just ended.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>

namespace spa {

enum class Phase { kIdentify, kAttention, kFfn, kHead, kSampling, kOther };
inline constexpr std::array<std::string_view, 6> kPhaseNames = {"identify", "attention", "ffn",
                                                                "head",     "sampling",  "other"};

class PhaseClock {
 public:
  // Ends the running phase and starts `phase`.
  void Enter(Phase phase) {
    const auto now = std::chrono::steady_clock::now();
    seconds_[static_cast<size_t>(current_)] += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    current_ = phase;
  }
  // Forgets everything and starts `kOther` now.
  void Reset() {
    seconds_.fill(0.0);
    since_ = std::chrono::steady_clock::now();
    current_ = Phase::kOther;
  }
  double seconds(Phase phase) const { return seconds_[static_cast<size_t>(phase)]; }

 private:
  std::array<double, kPhaseNames.size()> seconds_{};
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  Phase current_ = Phase::kOther;
};

}  // namespace spa
