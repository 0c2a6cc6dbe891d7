// The decoding options a user gave, by flag, request field or keyword. All others follow from the
// model and from these.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/options.h"
#include "engine/engine.h"

namespace spa {

class DecodeChoices {
 public:
  // Sets an option of DecodeOptionTable by name. Throws Error if there is none or the value is
  // invalid.
  void Set(std::string_view name, std::string_view value);
  bool has(const std::string& name) const { return values_.contains(name); }
  bool exact() const;  // was asked for

  // The model's defaults, overridden by what was given. Throws Error if the options contradict each
  // other.
  DecodeOptions Resolve(const Engine& engine) const;

 private:
  std::map<std::string, OptionValue> values_;
};

}  // namespace spa
