#include "base/aligned_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace spa {
namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void* AllocateAligned(size_t bytes) {
  bytes = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  const bool large = bytes >= kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, large ? kHugePage : kCacheLine, bytes) != 0) throw std::bad_alloc();
  // Best effort: small pages work too.
  if (large) ::madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return memory;
}

}  // namespace spa
