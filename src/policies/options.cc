#include "policies/options.h"

#include <algorithm>

#include "base/error.h"

namespace spa {
namespace {

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::string CacheSpec::ToString() const {
  if (options.empty()) return name;
  std::vector<std::string> parts;
  for (const auto& [key, value] : options) parts.push_back(fmt::format("{}={}", key, value));
  return fmt::format("{}({})", name, fmt::join(parts, ","));
}

void AddOption(CacheSpec& spec, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == 0 || equals == std::string_view::npos) {
    throw Error("the cache option '{}' is not of the form key=value", assignment);
  }
  std::string key(assignment.substr(0, equals));
  std::ranges::replace(key, '_', '-');
  spec.options[key] = assignment.substr(equals + 1);
}

CacheSpec ParseCacheSpec(std::string_view text) {
  const auto parts = Split(text, ':');
  if (parts.empty()) throw Error("a cache has no name: give it as NAME or NAME:key=value");
  CacheSpec spec{.name = std::string(parts[0]), .options = {}};
  for (size_t i = 1; i < parts.size(); ++i) AddOption(spec, parts[i]);
  return spec;
}

std::vector<CacheSpec> ParseCacheList(std::string_view text) {
  std::vector<CacheSpec> specs;
  for (const std::string_view part : Split(text, ',')) specs.push_back(ParseCacheSpec(part));
  return specs;
}

OptionReader::OptionReader(const CacheSpec& spec, std::vector<OptionInfo> table)
    : table_(std::move(table)) {
  for (const auto& [key, text] : spec.options) {
    const OptionInfo* info = FindOption(table_, key);
    if (info != nullptr) {
      values_[info->name] = ParseOption(*info, text, spec.name + " ");
      continue;
    }
    if (table_.empty())
      throw Error("the cache '{}' has no options; '{}' was given", spec.name, key);
    std::vector<std::string> names;
    for (const OptionInfo& option : table_) names.push_back(option.name);
    throw Error("the cache '{}' has no option '{}'{}: it has {}", spec.name, key,
                DidYouMean(key, names), fmt::join(names, ", "));
  }
}

const OptionValue* OptionReader::Find(const std::string& key) const {
  SPA_CHECK(FindOption(table_, key) != nullptr);
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<double> OptionReader::OptionalNumber(const std::string& key) const {
  const OptionValue* value = Find(key);
  return value == nullptr ? std::nullopt : std::optional(value->number);
}

double OptionReader::Number(const std::string& key, double absent) const {
  return OptionalNumber(key).value_or(absent);
}

size_t OptionReader::Count(const std::string& key, size_t absent) const {
  const OptionValue* value = Find(key);
  return value == nullptr ? absent : value->count();
}

bool OptionReader::Flag(const std::string& key, bool absent) const {
  const OptionValue* value = Find(key);
  return value == nullptr ? absent : value->flag();
}

size_t OptionReader::Choice(const std::string& key, size_t absent) const {
  return Count(key, absent);
}

std::string OptionReader::Text(const std::string& key, const std::string& absent) const {
  const OptionValue* value = Find(key);
  return value == nullptr ? absent : value->text;
}

}  // namespace spa
