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

namespace {

bool IsTerminal(int fd) {
  const char* term = std::getenv("TERM");
  return isatty(fd) != 0 && !(term != nullptr && std::string_view(term) == "dumb");
}

}  // namespace

bool StdoutIsTerminal() { return IsTerminal(STDOUT_FILENO); }
bool StderrIsTerminal() { return IsTerminal(STDERR_FILENO); }

void WriteStderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

TerminalSize StderrSize() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {};
  return {size.ws_col, size.ws_row};
}

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
  const int room = static_cast<int>(StderrSize().columns) - static_cast<int>(what.size()) - 7;
  const int width = std::clamp(room, 0, 32);
  const int full = permille * width / 1000;
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < full ? "█" : "░";
  const std::string line = fmt::format("{} {} {:3d}%", what, bar, permille / 10);
  PrintStderr("\r\x1b[K{}", Clip(line, StderrSize().columns - 1));
}

void ProgressBar::Clear() {
  if (last_permille_ < 0) return;
  PrintStderr("\r\x1b[K");
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

std::string Clip(std::string_view line, size_t columns) {
  std::string clipped;
  size_t width = 0;
  while (!line.empty()) {
    size_t length = 1;
    if (line.front() == '\x1b') {
      length = std::min(line.size(), line.find('m') + 1);
    } else {
      while (length < line.size() && (line[length] & 0xc0) == 0x80) ++length;
      width += DisplayWidth(line.substr(0, length));
    }
    if (width <= columns || line.front() == '\x1b') clipped += line.substr(0, length);
    line.remove_prefix(length);
  }
  return clipped;
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
      // Left-align names, right-align numbers.
      line += i == 0 ? row[i] + padding : padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace spa::cli
