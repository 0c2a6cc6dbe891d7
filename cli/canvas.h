// An answer being denoised as lines of styled text: masks dimmed, settled tokens plain, newly
// settled ones highlighted.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal.h"
#include "engine/engine.h"

namespace spa::cli {

// Text wrapped to a number of columns.
class Canvas {
 public:
  Canvas(size_t columns, std::string_view reset) : columns_(columns), reset_(reset) {}

  void Add(std::string_view text, std::string_view style);
  // Without empty lines at the end.
  std::vector<std::string> Lines() const;
  // Columns that line `index` takes; 0 beyond the last.
  size_t Width(size_t index) const { return index < widths_.size() ? widths_[index] : 0; }

 private:
  size_t columns_;
  std::string_view reset_;
  std::vector<std::string> lines_ = {""};
  std::vector<size_t> widths_ = {0};
};

Canvas DrawAnswer(const Engine& engine, const Decoder& decoder, size_t columns, const Style& style);

}  // namespace spa::cli
