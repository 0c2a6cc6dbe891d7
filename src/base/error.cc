#include "base/error.h"

namespace spa {

void CheckFailed(const char* file, int line, const char* condition) {
  throw InternalError(fmt::format("internal error at {}:{}: {}", file, line, condition));
}

}  // namespace spa
