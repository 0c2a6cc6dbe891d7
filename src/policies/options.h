// A cache and its options as the user wrote them (key=value), and how a policy reads them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace spa {

// A cache and its options: "spa" with {"rank": "64", "scope": "gen"}.
struct CacheSpec {
  std::string name = "none";
  std::map<std::string, std::string> options;

  std::string ToString() const;  // "spa(rank=64,scope=gen)"
};

// "key=value" as given on a command line. Throws Error if it is not of that form.
void AddOption(CacheSpec& spec, std::string_view assignment);

// "spa:rank=8:scope=all". Throws Error if an option is not of the form key=value.
CacheSpec ParseCacheSpec(std::string_view text);
// A list of them, separated by commas.
std::vector<CacheSpec> ParseCacheList(std::string_view text);

// Reads the options of a spec one by one. Values are checked against the cache's table when the
// reader is made; the policy supplies what is absent, since that may depend on the model.
class OptionReader {
 public:
  // Throws Error for an option that is not in the table or a value that it does not take.
  OptionReader(const CacheSpec& spec, std::vector<OptionInfo> table);

  double Number(const std::string& key, double absent) const;
  std::optional<double> OptionalNumber(const std::string& key) const;
  size_t Count(const std::string& key, size_t absent) const;
  bool Flag(const std::string& key, bool absent) const;
  size_t Choice(const std::string& key, size_t absent) const;  // an index of its choices
  std::string Text(const std::string& key, const std::string& absent) const;

  // Records a setting that no option names, such as a stored profile.
  void Note(std::string text) { notes_.push_back(std::move(text)); }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  const OptionValue* Find(const std::string& key) const;

  std::vector<OptionInfo> table_;
  std::map<std::string, OptionValue> values_;
  std::vector<std::string> notes_;
};

}  // namespace spa
