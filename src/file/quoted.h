// Text from a file, made safe for an error message of one line.
#pragma once

#include <string>
#include <string_view>

namespace spa {

// 'text' in quotes: at most 80 bytes of it, everything but printable ASCII as \xNN.
std::string Quoted(std::string_view text);

}  // namespace spa
