// Token ids, as the whole engine counts them.
#pragma once

#include <cstdint>

namespace spa {

using TokenId = int32_t;

}  // namespace spa
