// Memory for matrices.
#pragma once

#include <cstddef>

namespace spa {

// Uninitialised; release with std::free. Throws std::bad_alloc. Sizes are rounded up to cache
// lines. Large pieces are aligned to huge pages, which the system is asked to use: weights are
// gigabytes, and with small pages first touching them and looking them up costs several times as
// much.
void* AllocateAligned(size_t bytes);

}  // namespace spa
