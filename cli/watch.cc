#include "cli/watch.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "text/text_stream.h"

namespace spa::cli {
namespace {

struct Size {
  size_t columns = 80, rows = 24;
};

Size TerminalSize() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {};
  return {size.ws_col, size.ws_row};
}

// Lines of styled text, wrapped to the terminal.
class Canvas {
 public:
  Canvas(size_t columns, std::string_view reset) : columns_(columns), reset_(reset) {}

  void Add(std::string_view text, std::string_view style) {
    while (!text.empty()) {
      // One character at a time: continuation bytes are 10xxxxxx.
      size_t length = 1;
      while (length < text.size() && (text[length] & 0xc0) == 0x80) ++length;
      const std::string_view character = text.substr(0, length);
      text.remove_prefix(length);
      if (character == "\n") {
        lines_.emplace_back();
        width_ = 0;
        continue;
      }
      const size_t width = DisplayWidth(character);
      if (width_ + width > columns_) {
        lines_.emplace_back();
        width_ = 0;
      }
      width_ += width;
      lines_.back() += fmt::format("{}{}{}", style, character, style.empty() ? "" : reset_);
    }
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  size_t columns_;
  std::string_view reset_;
  std::vector<std::string> lines_ = {""};
  size_t width_ = 0;
};

}  // namespace

Watch::Watch() : terminal_(StderrIsTerminal()), style_(terminal_) {}

void Watch::Show(const Engine& engine, const Decoder& decoder) {
  const size_t begin = decoder.prompt_length();
  const auto masked = decoder.masked().subspan(begin);
  const auto settled = static_cast<size_t>(std::ranges::count(masked, 0));
  if (!terminal_) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_line_ < std::chrono::seconds(1) && !decoder.done()) return;
    last_line_ = now;
    fmt::print(stderr, "step {}: {} of {} tokens\n", decoder.steps(), settled, masked.size());
    return;
  }
  const Size size = TerminalSize();
  Canvas canvas(size.columns - 1, style_.reset);
  const auto ids = decoder.ids().subspan(begin);
  const auto is_new = [&](size_t i) {
    return std::ranges::binary_search(decoder.committed(), static_cast<uint32_t>(begin + i));
  };
  for (size_t i = 0; i < ids.size();) {
    if (masked[i]) {
      canvas.Add("░", style_.dim);
      ++i;
      continue;
    }
    // A run of tokens of one kind is decoded together, so that split characters join.
    const bool highlight = is_new(i);
    std::vector<TokenId> run;
    for (; i < ids.size() && !masked[i] && is_new(i) == highlight; ++i) run.push_back(ids[i]);
    canvas.Add(engine.tokenizer().Decode(run), highlight ? style_.green : std::string_view());
  }
  std::vector<std::string> lines = canvas.lines();
  while (lines.size() > 1 && lines.back().empty()) lines.pop_back();
  // Keep to the screen: what has scrolled away cannot be redrawn.
  if (lines.size() + 1 > size.rows && size.rows > 2) {
    lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(size.rows - 2));
  }
  lines.push_back(fmt::format("{}step {} · {}/{} tokens{}", style_.dim, decoder.steps(), settled,
                              masked.size(), style_.reset));
  std::string frame = lines_ > 1 ? fmt::format("\r\x1b[{}A", lines_ - 1) : std::string("\r");
  frame += "\x1b[J";
  for (size_t i = 0; i < lines.size(); ++i) frame += (i > 0 ? "\n" : "") + lines[i];
  lines_ = lines.size();
  std::fwrite(frame.data(), 1, frame.size(), stderr);
  std::fflush(stderr);
}

void Watch::Finish() {
  if (lines_ == 0) return;
  fmt::print(stderr, "{}\x1b[J", lines_ > 1 ? fmt::format("\r\x1b[{}A", lines_ - 1) : "\r");
  std::fflush(stderr);
  lines_ = 0;
}

}  // namespace spa::cli
