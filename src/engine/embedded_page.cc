#include "engine/embedded_page.h"

#include <cstddef>

extern "C" const char spa_embedded_page_begin[];
extern "C" const char spa_embedded_page_end[];

namespace spa {

std::string_view EmbeddedPage() {
  return {spa_embedded_page_begin,
          static_cast<size_t>(spa_embedded_page_end - spa_embedded_page_begin)};
}

}  // namespace spa
