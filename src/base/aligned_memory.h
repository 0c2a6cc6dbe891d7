// Memory for matrices.
#pragma once

#include <cstddef>

namespace spa {

// Uninitialised, for std::free; throws std::bad_alloc. Whole cache lines, and large pieces start on
// a huge page that the system is asked to use: weights are gigabytes, and first touching them and
// looking up their pages costs a multiple with small ones.
void* AllocateAligned(size_t bytes);

}  // namespace spa
