// One engine for all server tests of a process.
#pragma once

#include "engine/engine.h"

namespace spa {

inline Engine& TestEngine() {
  static Engine engine(
      {.model = SPA_TEST_DATA "/mini.gguf", .threads = 2, .kv_type = KvType::kF32, .progress = {}});
  return engine;
}

}  // namespace spa
