#include "base/json_depth.h"

#include <algorithm>

#include "base/error.h"

namespace spa {

size_t JsonDepth(std::string_view json) {
  size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

void CheckJsonDepth(std::string_view json, const std::string& name) {
  constexpr size_t kMost = 64;
  if (JsonDepth(json) > kMost) throw Error("{}: JSON nested deeper than {}", name, kMost);
}

}  // namespace spa
