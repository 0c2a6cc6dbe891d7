#include "cli/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cli/canvas.h"

namespace spa::cli {

Watch::Watch() : terminal_(StderrIsTerminal()), style_(terminal_) {}

void Watch::Show(const Engine& engine, const Decoder& decoder) {
  const auto masked = decoder.masked().subspan(decoder.prompt_length());
  const auto settled = static_cast<size_t>(std::ranges::count(masked, 0));
  if (!terminal_) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_line_ < std::chrono::seconds(1) && !decoder.done()) return;
    last_line_ = now;
    PrintStderr("step {}: {} of {} tokens\n", decoder.steps(), settled, masked.size());
    return;
  }
  std::vector<std::string> lines =
      DrawAnswer(engine, decoder, StderrSize().columns - 1, style_).Lines();
  lines.push_back(fmt::format("{}step {} · {}/{} tokens{}", style_.dim, decoder.steps(), settled,
                              masked.size(), style_.reset));
  Draw(lines);
}

void Watch::Draw(std::vector<std::string> lines) {
  // Stay on the screen: what has scrolled away cannot be redrawn.
  const size_t rows = StderrSize().rows;
  if (lines.size() >= rows && rows > 2) {
    lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(rows - 1));
  }
  std::string frame = lines_ > 1 ? fmt::format("\r\x1b[{}A", lines_ - 1) : std::string("\r");
  frame += "\x1b[J";
  const size_t columns = StderrSize().columns - 1;
  for (size_t i = 0; i < lines.size(); ++i) {
    frame += (i > 0 ? "\n" : "") + Clip(lines[i], columns);
  }
  lines_ = lines.size();
  WriteStderr(frame);
}

void Watch::Finish() {
  if (lines_ == 0) return;
  PrintStderr("{}\x1b[J", lines_ > 1 ? fmt::format("\r\x1b[{}A", lines_ - 1) : "\r");
  lines_ = 0;
}

}  // namespace spa::cli
