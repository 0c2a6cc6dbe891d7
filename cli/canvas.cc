#include "cli/canvas.h"

#include <fmt/format.h>

#include <algorithm>

namespace spa::cli {

void Canvas::Add(std::string_view text, std::string_view style) {
  while (!text.empty()) {
    // One character at a time: continuation bytes are 10xxxxxx.
    size_t length = 1;
    while (length < text.size() && (text[length] & 0xc0) == 0x80) ++length;
    const std::string_view character = text.substr(0, length);
    text.remove_prefix(length);
    const size_t width = character == "\n" ? 0 : DisplayWidth(character);
    if (character == "\n" || widths_.back() + width > columns_) {
      lines_.emplace_back();
      widths_.push_back(0);
    }
    if (character == "\n") continue;
    widths_.back() += width;
    lines_.back() += fmt::format("{}{}{}", style, character, style.empty() ? "" : reset_);
  }
}

std::vector<std::string> Canvas::Lines() const {
  std::vector<std::string> lines = lines_;
  while (lines.size() > 1 && lines.back().empty()) lines.pop_back();
  return lines;
}

Canvas DrawAnswer(const Engine& engine, const Decoder& decoder, size_t columns,
                  const Style& style) {
  Canvas canvas(columns, style.reset);
  const size_t begin = decoder.prompt_length();
  const auto ids = decoder.ids().subspan(begin);
  const auto masked = decoder.masked().subspan(begin);
  const auto is_new = [&](size_t i) { return decoder.changed().Contains(begin + i); };
  for (size_t i = 0; i < ids.size();) {
    if (masked[i]) {
      canvas.Add("░", style.dim);
      ++i;
      continue;
    }
    // A run of tokens of one kind is decoded together, so that split characters join.
    const bool highlight = is_new(i);
    std::vector<TokenId> run;
    for (; i < ids.size() && !masked[i] && is_new(i) == highlight; ++i) run.push_back(ids[i]);
    canvas.Add(engine.tokenizer().Decode(run), highlight ? style.green : std::string_view());
  }
  return canvas;
}

}  // namespace spa::cli
