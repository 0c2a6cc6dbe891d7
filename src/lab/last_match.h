// Regular expressions for finding answers. <regex> takes several seconds to compile: only
// last_match.cc includes it.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace spa {

// Finds the last match of an ECMAScript regular expression in a text, or that match's first group
// if it has one. Throws Error if it is not a regular expression.
using Finder = std::function<std::optional<std::string>(const std::string& text)>;
Finder LastMatch(const std::string& expression);

}  // namespace spa
