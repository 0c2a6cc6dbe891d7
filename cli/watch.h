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

class Watch {
 public:
  Watch();
  // After a step of the generation.
  void Show(const Engine& engine, const Decoder& decoder);
  // Replaces the lines drawn last. On a terminal only.
  void Draw(std::vector<std::string> lines);
  // Removes the picture; the caller prints the final text.
  void Finish();

 private:
  bool terminal_;
  Style style_;
  size_t lines_ = 0;  // on screen
  std::chrono::steady_clock::time_point last_line_;
};

}  // namespace spa::cli
