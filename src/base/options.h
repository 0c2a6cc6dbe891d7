// Options as data: the name of an option, the values it takes, what it is for. Flags, request
// fields, records, the page's controls and the reference in docs/ are made from such tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace spa {

enum class OptionType { kCount, kReal, kChoice, kFlag, kText };

struct OptionInfo {
  std::string name;  // "block-length"; as a request field block_length
  OptionType type = OptionType::kReal;
  double least = 0.0, most = 0.0;         // kCount, kReal
  std::vector<std::string> choices = {};  // kChoice
  std::string fallback;                   // the default, as people read it
  std::string help;                       // one line
  std::string alias = {};                 // another name for it

  static OptionInfo Count(std::string name, double least, double most, std::string fallback,
                          std::string help);
  static OptionInfo Number(std::string name, double least, double most, std::string fallback,
                           std::string help);
  static OptionInfo Choice(std::string name, std::vector<std::string> choices, std::string fallback,
                           std::string help);
  static OptionInfo Flag(std::string name, std::string fallback, std::string help);
  static OptionInfo Text(std::string name, std::string fallback, std::string help);

  OptionInfo WithAlias(std::string other) &&;
  // "a number from 0 to 1", "one of gen, all, reach".
  std::string Expected() const;
};

// A value that has been checked against its option.
struct OptionValue {
  double number = 0.0;  // kCount, kReal; kFlag: 0 or 1
  uint64_t whole = 0;   // kCount, exactly; kChoice: the index
  std::string text;     // as it was given

  size_t count() const { return static_cast<size_t>(whole); }
  bool flag() const { return number != 0.0; }
};

// Throws Error naming the option and what was expected. `whose` is put before its name ("spa ").
OptionValue ParseOption(const OptionInfo& info, std::string_view text, std::string_view whose = "");

// The option of that name or alias ('_' and '-' are the same), or nullptr.
const OptionInfo* FindOption(std::span<const OptionInfo> table, std::string_view name);

// " (did you mean 'x'?)" for the nearest of `names`, or "" if none is near.
std::string DidYouMean(std::string_view name, std::span<const std::string> names);

}  // namespace spa
