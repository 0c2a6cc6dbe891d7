#include "kernels/simd_targets.h"

#include "kernels/targets.h"
// Comes after targets.h.
#include <hwy/highway.h>

#include <atomic>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace spa {
namespace {

bool ProcessorHasAvxVnni() {
#if HWY_ARCH_X86
  unsigned a, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
#else
  return false;
#endif
}

std::atomic<bool>& AvxVnni() {
  static std::atomic<bool> has = ProcessorHasAvxVnni();
  return has;
}

}  // namespace

SimdTargets FindSimdTargets() {
  SimdTargets found;
  const int64_t supported = hwy::SupportedTargets();
  // A better target has a lower bit.
  for (int64_t left = HWY_TARGETS; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    found.compiled.emplace_back(hwy::TargetName(target));
    if (found.used.empty() && (target & supported) != 0) found.used = found.compiled.back();
  }
  if (found.used == hwy::TargetName(HWY_AVX2) && HasAvxVnni()) found.used += " with VNNI";
  return found;
}

bool HasAvxVnni() { return AvxVnni().load(std::memory_order_relaxed); }

void SetAvxVnniForTest(bool has) { AvxVnni() = has; }

}  // namespace spa
