#include "policies/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

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
  for (const auto& [key, value] : options) parts.push_back(key + "=" + value);
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

const std::string* OptionReader::Find(const std::string& key) {
  known_.insert(key);
  const auto it = spec_.options.find(key);
  return it == spec_.options.end() ? nullptr : &it->second;
}

std::optional<double> OptionReader::OptionalNumber(const std::string& key, double least,
                                                   double most) {
  const std::string* text = Find(key);
  if (text == nullptr) return std::nullopt;
  double value = 0.0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || !std::isfinite(value) ||
      value < least || value > most) {
    throw Error("the {} option {}={} is not a number between {} and {}", spec_.name, key, *text,
                least, most);
  }
  return value;
}

double OptionReader::Number(const std::string& key, double absent, double least, double most) {
  return OptionalNumber(key, least, most).value_or(absent);
}

size_t OptionReader::Count(const std::string& key, size_t absent, size_t least, size_t most) {
  const auto value =
      OptionalNumber(key, static_cast<double>(least), static_cast<double>(most));
  if (!value) return absent;
  if (*value != std::floor(*value)) {
    throw Error("the {} option {} must be a whole number", spec_.name, key);
  }
  return static_cast<size_t>(*value);
}

bool OptionReader::Flag(const std::string& key, bool absent) {
  const std::string* text = Find(key);
  if (text == nullptr) return absent;
  for (const char* yes : {"true", "on", "1", "yes"}) {
    if (*text == yes) return true;
  }
  for (const char* no : {"false", "off", "0", "no"}) {
    if (*text == no) return false;
  }
  throw Error("the {} option {}={} is neither on nor off", spec_.name, key, *text);
}

size_t OptionReader::Choice(const std::string& key, size_t absent,
                            const std::vector<std::string>& choices) {
  const std::string* text = Find(key);
  if (text == nullptr) return absent;
  const auto it = std::ranges::find(choices, *text);
  if (it == choices.end()) {
    throw Error("the {} option {}={} is unknown: choose from {}", spec_.name, key, *text,
                fmt::join(choices, ", "));
  }
  return static_cast<size_t>(it - choices.begin());
}

std::optional<std::string> OptionReader::Text(const std::string& key) {
  const std::string* text = Find(key);
  return text == nullptr ? std::nullopt : std::optional(*text);
}

void OptionReader::Finish() const {
  for (const auto& [key, value] : spec_.options) {
    if (known_.contains(key)) continue;
    if (known_.empty()) throw Error("the cache '{}' has no options; '{}' was given", spec_.name, key);
    throw Error("the cache '{}' has no option '{}': it has {}", spec_.name, key,
                fmt::join(known_, ", "));
  }
}

}  // namespace spa
