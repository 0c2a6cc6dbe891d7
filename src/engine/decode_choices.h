// The decoding options as somebody asked for them, by flag, request field or keyword: what was left
// out follows from the model and from the rest.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/options.h"
#include "engine/engine.h"

namespace spa {

class DecodeChoices {
 public:
  // An option of DecodeOptionTable by its name. Throws Error if there is none or it does not take
  // the value.
  void Set(std::string_view name, std::string_view value);
  bool has(const std::string& name) const { return values_.contains(name); }

  // The model's defaults with what was chosen. Throws Error if it does not go together.
  DecodeOptions Resolve(const Engine& engine) const;

 private:
  std::map<std::string, OptionValue> values_;
};

}  // namespace spa
