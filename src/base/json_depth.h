// How deep a JSON text nests. The JSON library copies, compares and prints values recursively, so
// depth must be bounded before a text is parsed: a few hundred thousand brackets would overflow the
// stack.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spa {

// The nesting depth of lists and objects. Text that is not JSON has some depth, too.
size_t JsonDepth(std::string_view json);

// Throws Error if a file's text nests deeper than any file we read. `name` appears in the message.
void CheckJsonDepth(std::string_view json, const std::string& name);

}  // namespace spa
