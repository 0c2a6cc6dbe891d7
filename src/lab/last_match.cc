#include "lab/last_match.h"

#include <regex>

#include "base/error.h"

namespace spa {
namespace {

std::regex Compile(const std::string& expression) {
  try {
    return std::regex(expression);
  } catch (const std::regex_error&) {
    throw Error("the extraction pattern '{}' is not a regular expression", expression);
  }
}

}  // namespace

Finder LastMatch(const std::string& expression) {
  return [pattern = Compile(expression)](const std::string& text) {
    std::optional<std::string> found;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
      found = it->size() > 1 ? (*it)[1].str() : it->str();
    }
    return found;
  };
}

}  // namespace spa
