// The options of a cache as the user wrote them (key=value), read one by one by its policy. Values
// are checked against the range the policy gives; keys that nobody read are refused.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

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

class OptionReader {
 public:
  explicit OptionReader(const CacheSpec& spec) : spec_(spec) {}

  double Number(const std::string& key, double absent, double least, double most);
  std::optional<double> OptionalNumber(const std::string& key, double least, double most);
  // A whole number.
  size_t Count(const std::string& key, size_t absent, size_t least, size_t most);
  bool Flag(const std::string& key, bool absent);  // true/false, on/off, 1/0, yes/no
  // One of `choices`; returns its index.
  size_t Choice(const std::string& key, size_t absent, const std::vector<std::string>& choices);
  std::optional<std::string> Text(const std::string& key);

  // What is in force though no option says so, such as a stored profile.
  void Note(std::string text) { notes_.push_back(std::move(text)); }
  const std::vector<std::string>& notes() const { return notes_; }

  // Call last. Throws Error naming an option that was not asked for, and those that exist.
  void Finish() const;

 private:
  const std::string* Find(const std::string& key);

  const CacheSpec& spec_;
  std::set<std::string> known_;
  std::vector<std::string> notes_;
};

}  // namespace spa
