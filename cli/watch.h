// The answer resolving in place: masks dimmed, settled tokens plain, newly settled ones
// highlighted. On anything but a terminal it prints a line now and then instead.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "engine/engine.h"

namespace spa::cli {

// Keeps every frame on screen for a while, until Enter is pressed.
class Pace {
 public:
  // `least`: how long a frame stays. No pauses without a terminal.
  explicit Pace(std::chrono::milliseconds least);
  // Waits until the frame of the last call has stayed that long.
  void Wait();

 private:
  std::chrono::milliseconds least_;
  std::chrono::steady_clock::time_point last_;
};

// The progress of a generation in words: by layers within the first step, then by steps, with the
// pace and the time left.
class StepClock {
 public:
  // `steps`: the most it can take.
  explicit StepClock(size_t steps) : steps_(steps), start_(std::chrono::steady_clock::now()) {}
  void LayerDone(size_t done, size_t layers);
  void StepDone(size_t step);

  double share() const;
  bool quick() const;  // steps are too fast for status lines
  // "first step, layer 3 of 32, 9 s left" or "step 7 of at most 64, 1.2 s per step, at most 68 s
  // left"; quick ones say no times.
  std::string Describe() const;

 private:
  // Seconds of a step; the first one is dense, and counts only while there is no other.
  double Pace() const;

  size_t steps_, step_ = 0;
  size_t layer_ = 0, layers_ = 0;  // of the step under way
  std::chrono::steady_clock::time_point start_, step_end_;
  double first_seconds_ = 0.0;
};

class Watch {
 public:
  Watch();
  // After a step of the generation.
  void Show(const Engine& engine, const Decoder& decoder, const std::string& status);
  // Replaces the lines drawn last. On a terminal only.
  void Draw(std::vector<std::string> lines);
  // Replaces the last of them.
  void DrawStatus(const std::string& status);
  // Removes the frame; the caller prints the final text.
  void Finish();

 private:
  bool terminal_;
  Style style_;
  std::vector<std::string> shown_;
  std::chrono::steady_clock::time_point last_line_;
};

}  // namespace spa::cli
