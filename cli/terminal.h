// Terminal output: progress bars and colours on terminals only, plain text everywhere else.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spa::cli {

// A terminal that can move its cursor.
bool StdoutIsTerminal();
bool StderrIsTerminal();

// Failures to write to stderr are ignored.
void WriteStderr(std::string_view text);
template <typename... Args>
void PrintStderr(fmt::format_string<Args...> format, Args&&... args) {
  WriteStderr(fmt::format(format, std::forward<Args>(args)...));
}

struct TerminalSize {
  size_t columns = 80, rows = 24;
};
TerminalSize StderrSize();

// Escape sequences, or empty strings when `on` is false (not a terminal, or NO_COLOR is set).
struct Style {
  explicit Style(bool on);
  std::string_view reset, bold, dim, green, yellow, red, reverse;
};

// A bar on stderr that redraws itself in place; silent when stderr is not a terminal. Cleared when
// finished, so that only results remain.
class ProgressBar {
 public:
  ~ProgressBar() { Clear(); }
  void Show(std::string_view what, double share);
  void Clear();

 private:
  int last_permille_ = -1;
  std::string last_what_;
};

// Columns `text` (valid UTF-8) takes on a terminal.
size_t DisplayWidth(std::string_view text);
// The part of `line` that fits in the columns; escape sequences take none and are all kept.
std::string Clip(std::string_view line, size_t columns);

// A right- or left-aligned text table. The first row is the header.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace spa::cli
