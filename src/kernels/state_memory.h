// Memory for sequence state. The system clears memory on first touch, which takes a tenth of a
// second per gigabyte and many times that on virtual machines. So the memory of a finished sequence
// is kept for the next, up to a limit.
#pragma once

#include <cstddef>

#include "base/matrix.h"

namespace spa {

// The size actually allocated for this many bytes. Large pieces come in few sizes, so that a kept
// one often fits; at most a sixteenth is wasted.
size_t StateBytes(size_t bytes);

// A piece of StateBytes(bytes), that many bytes of it in use. Its contents are undefined.
Mat<std::byte> TakeStateMemory(size_t bytes);
void LeaveStateMemory(Mat<std::byte> piece);

// How much freed memory may be kept; 0 at first.
void KeepStateMemory(size_t limit);
size_t StateMemoryLimit();
size_t StateMemoryKept();
void ReleaseStateMemory();

}  // namespace spa
