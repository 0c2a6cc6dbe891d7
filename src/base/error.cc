#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace spa {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "spa: internal error at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace spa
