#include "engine/embedded.h"

// Made by cmake/spa_folder.cmake from models/ and web/dist/.
extern "C" const std::byte spa_embedded_model_begin[];
extern "C" const std::byte spa_embedded_model_end[];
extern "C" const char spa_embedded_page_begin[];
extern "C" const char spa_embedded_page_end[];

namespace spa {

std::span<const std::byte> EmbeddedModel() {
  return {spa_embedded_model_begin, spa_embedded_model_end};
}

std::string_view EmbeddedPage() {
  return {spa_embedded_page_begin,
          static_cast<size_t>(spa_embedded_page_end - spa_embedded_page_begin)};
}

}  // namespace spa
