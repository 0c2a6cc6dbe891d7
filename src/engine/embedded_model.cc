#include <cstddef>
#include <span>

#include "engine/engine.h"

// Made by cmake/spa_folder.cmake from models/.
extern "C" const std::byte spa_embedded_model_begin[];
extern "C" const std::byte spa_embedded_model_end[];

namespace spa {

std::span<const std::byte> EmbeddedModel() {
  return {spa_embedded_model_begin, spa_embedded_model_end};
}

}  // namespace spa
