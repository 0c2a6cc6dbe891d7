#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cwchar>

namespace spa::cli {

bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) != 0; }
bool StderrIsTerminal() { return isatty(STDERR_FILENO) != 0; }

Style::Style(bool on) {
  const char* no_color = std::getenv("NO_COLOR");
  if (!on || (no_color != nullptr && *no_color != '\0')) return;
  reset = "\x1b[0m";
  bold = "\x1b[1m";
  dim = "\x1b[2m";
  green = "\x1b[32m";
  yellow = "\x1b[33m";
  red = "\x1b[31m";
  reverse = "\x1b[7m";
}

void ProgressBar::Show(std::string_view what, double share) {
  if (!StderrIsTerminal()) return;
  const int permille = static_cast<int>(std::clamp(share, 0.0, 1.0) * 1000.0);
  if (permille == last_permille_ && what == last_what_) return;
  last_permille_ = permille;
  last_what_ = what;
  constexpr int kWidth = 32;
  const int full = permille * kWidth / 1000;
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < full ? "█" : "░";
  fmt::print(stderr, "\r\x1b[K{} {} {:3d}%", what, bar, permille / 10);
  std::fflush(stderr);
}

void ProgressBar::Clear() {
  if (last_permille_ < 0) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  last_permille_ = -1;
}

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  std::mbstate_t state{};
  while (!text.empty()) {
    wchar_t c = 0;
    const size_t used = std::mbrtowc(&c, text.data(), text.size(), &state);
    if (used == 0 || used > text.size()) return width + text.size();
    const int columns = wcwidth(c);
    width += columns > 0 ? static_cast<size_t>(columns) : 0;
    text.remove_prefix(used);
  }
  return width;
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - DisplayWidth(row[i]), ' ');
      if (i > 0) line += "  ";
      // Names to the left, numbers to the right.
      line += i == 0 ? row[i] + padding : padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string FormatBytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000.0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace spa::cli
