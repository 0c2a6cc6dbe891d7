// Memory for what sequences keep. The system clears memory that is touched for the first time,
// which takes a tenth of a second per gigabyte and, on virtual machines, many times that. So what
// a finished sequence leaves is kept for the next, up to a limit.
#pragma once

#include <cstddef>

#include "base/matrix.h"

namespace spa {

// What is really taken for so many bytes: large pieces have few sizes, so that one that is left
// often fits. At most a sixteenth is unused.
size_t StateBytes(size_t bytes);

// A piece of StateBytes(bytes), that many bytes of it in use. Its contents are undefined.
Mat<std::byte> TakeStateMemory(size_t bytes);
void LeaveStateMemory(Mat<std::byte> piece);

// How much may be kept of what was left; nothing at first.
void KeepStateMemory(size_t limit);
size_t StateMemoryLimit();
size_t StateMemoryKept();
void ReleaseStateMemory();

}  // namespace spa
