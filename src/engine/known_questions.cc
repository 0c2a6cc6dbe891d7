#include "engine/known_questions.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"

namespace spa {
namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

constexpr size_t kShown = 4;  // unknown words in a message

// Words the model never saw in training, one more than are shown at most: a request may hold a
// million. The vocabulary was made from the training text, so unknown words are split into pieces.
// Names (with a capital letter) may be any.
std::vector<std::string> UnknownWords(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> unknown;
  for (size_t begin = 0; begin < text.size() && unknown.size() <= kShown;) {
    if (!IsLetter(text[begin])) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < text.size() && IsLetter(text[end])) ++end;
    const std::string word(text.substr(begin, end - begin));
    begin = end;
    if (word[0] <= 'Z' || tokenizer.Encode(word).size() == 1 ||
        tokenizer.Encode(" " + word).size() == 1) {
      continue;
    }
    if (std::ranges::find(unknown, word) == unknown.end()) unknown.push_back(word);
  }
  return unknown;
}

}  // namespace

bool HasForm(std::string_view text, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  text.remove_prefix(star);
  // Every part between two stars at its first place, the last one at the end.
  while (true) {
    pattern.remove_prefix(pattern.find('*') + 1);
    const size_t next = pattern.find('*');
    if (next == std::string_view::npos) return text.ends_with(pattern);
    const size_t place = text.find(pattern.substr(0, next));
    if (place == std::string_view::npos) return false;
    text.remove_prefix(place + next);
  }
}

void CheckKnown(const Engine& engine, std::span<const ChatMessage> messages) {
  const ModelConfig& config = engine.config();
  if (config.question_forms.empty() || messages.empty()) return;
  const auto last = std::find_if(messages.rbegin(), messages.rend(),
                                 [](const ChatMessage& message) { return message.role == "user"; });
  if (last == messages.rend()) return;
  std::string_view question = last->content;
  while (!question.empty() && question.back() <= ' ') question.remove_suffix(1);
  const bool has_form = std::ranges::any_of(
      config.question_forms, [&](const std::string& form) { return HasForm(question, form); });
  const std::vector<std::string> unknown = UnknownWords(engine.tokenizer(), question);
  if (has_form && unknown.empty()) return;
  std::string why;
  if (!unknown.empty()) {
    const size_t shown = std::min(kShown, unknown.size());
    why = fmt::format(
        " (it has never seen: {}{})",
        fmt::join(unknown.begin(), unknown.begin() + static_cast<ptrdiff_t>(shown), ", "),
        shown < unknown.size() ? ", ..." : "");
  }
  throw Error("this model cannot answer that{}: it knows {}", why, config.knows);
}

}  // namespace spa
