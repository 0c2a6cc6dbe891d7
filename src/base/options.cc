#include "base/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace spa {
namespace {

bool SameName(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return x == y || ((x == '-' || x == '_') && (y == '-' || y == '_'));
  });
}

// Insertions, deletions, replacements and swaps of neighbours that turn one word into the other.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

OptionInfo OptionInfo::Count(std::string name, double least, double most, std::string fallback,
                             std::string help) {
  return {.name = std::move(name),
          .type = OptionType::kCount,
          .least = least,
          .most = most,
          .fallback = std::move(fallback),
          .help = std::move(help)};
}

OptionInfo OptionInfo::Number(std::string name, double least, double most, std::string fallback,
                              std::string help) {
  return {.name = std::move(name),
          .type = OptionType::kReal,
          .least = least,
          .most = most,
          .fallback = std::move(fallback),
          .help = std::move(help)};
}

OptionInfo OptionInfo::Choice(std::string name, std::vector<std::string> choices,
                              std::string fallback, std::string help) {
  return {.name = std::move(name),
          .type = OptionType::kChoice,
          .choices = std::move(choices),
          .fallback = std::move(fallback),
          .help = std::move(help)};
}

OptionInfo OptionInfo::Flag(std::string name, std::string fallback, std::string help) {
  return {.name = std::move(name),
          .type = OptionType::kFlag,
          .fallback = std::move(fallback),
          .help = std::move(help)};
}

OptionInfo OptionInfo::Text(std::string name, std::string fallback, std::string help) {
  return {.name = std::move(name),
          .type = OptionType::kText,
          .fallback = std::move(fallback),
          .help = std::move(help)};
}

OptionInfo OptionInfo::WithAlias(std::string other) && {
  alias = std::move(other);
  return std::move(*this);
}

std::string OptionInfo::Expected() const {
  switch (type) {
    case OptionType::kCount:
      return fmt::format("a whole number from {:.0f} to {}", least,
                         most < 0x1p64 ? fmt::format("{:.0f}", most) : "18446744073709551615");
    case OptionType::kReal:
      return fmt::format("a number from {} to {}", least, most);
    case OptionType::kChoice:
      return fmt::format("one of {}", fmt::join(choices, ", "));
    case OptionType::kFlag:
      return "on or off";
    case OptionType::kText:
      break;
  }
  return "text";
}

OptionValue ParseOption(const OptionInfo& info, std::string_view text, std::string_view whose) {
  OptionValue value{.number = 0.0, .text = std::string(text)};
  const auto refuse = [&] {
    throw Error("the {}option {}={} must be {}", whose, info.name, text, info.Expected());
  };
  switch (info.type) {
    case OptionType::kCount:
    case OptionType::kReal: {
      const char* end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data(), end, value.number);
      if (error != std::errc() || stop != end || !std::isfinite(value.number) ||
          value.number < info.least || value.number > info.most ||
          (info.type == OptionType::kCount && value.number != std::floor(value.number))) {
        refuse();
      }
      if (info.type == OptionType::kCount) {
        // Beyond 2^53 a double is not exact; other spellings of a number ("64.0") are small.
        const auto [whole_stop, whole_error] = std::from_chars(text.data(), end, value.whole);
        if (whole_error != std::errc() || whole_stop != end) {
          if (value.number >= 0x1p64) refuse();
          value.whole = static_cast<uint64_t>(value.number);
        }
      }
      break;
    }
    case OptionType::kChoice: {
      const auto found = std::ranges::find(info.choices, text);
      if (found == info.choices.end()) refuse();
      value.whole = static_cast<uint64_t>(found - info.choices.begin());
      break;
    }
    case OptionType::kFlag: {
      constexpr std::string_view kOn[] = {"on", "true", "1", "yes"};
      constexpr std::string_view kOff[] = {"off", "false", "0", "no"};
      if (std::ranges::find(kOn, text) != std::end(kOn)) {
        value.number = 1.0;
      } else if (std::ranges::find(kOff, text) == std::end(kOff)) {
        refuse();
      }
      break;
    }
    case OptionType::kText:
      break;
  }
  return value;
}

const OptionInfo* FindOption(std::span<const OptionInfo> table, std::string_view name) {
  const auto found = std::ranges::find_if(table, [&](const OptionInfo& info) {
    return SameName(info.name, name) || (!info.alias.empty() && SameName(info.alias, name));
  });
  return found == table.end() ? nullptr : &*found;
}

std::string DidYouMean(std::string_view name, std::span<const std::string> names) {
  const std::string* best = nullptr;
  size_t least = 3;  // farther apart: a different word
  for (const std::string& candidate : names) {
    const size_t distance = Distance(name, candidate);
    if (distance < least && distance < candidate.size()) {
      least = distance;
      best = &candidate;
    }
  }
  return best == nullptr ? "" : fmt::format(" (did you mean '{}'?)", *best);
}

}  // namespace spa
