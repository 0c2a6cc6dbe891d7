// Memory for matrices.
#pragma once

#include <cstddef>

namespace spa {

// Uninitialised; release with std::free. Throws std::bad_alloc. Sizes are rounded up to cache
// lines. Large allocations are aligned to huge pages and ask for them: weights take gigabytes, and
// with small pages first touch and TLB misses cost several times as much.
void* AllocateAligned(size_t bytes);

}  // namespace spa
