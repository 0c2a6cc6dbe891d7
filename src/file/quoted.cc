#include "file/quoted.h"

#include <fmt/format.h>

namespace spa {

std::string Quoted(std::string_view text) {
  constexpr size_t kMaxBytes = 80;
  std::string quoted = "'";
  for (const char c : text.substr(0, kMaxBytes)) {
    if (c >= 0x20 && c < 0x7f) {
      quoted += c;
    } else {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  quoted += text.size() > kMaxBytes ? "...'" : "'";
  return quoted;
}

}  // namespace spa
