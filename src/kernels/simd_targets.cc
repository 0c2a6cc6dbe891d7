#include "kernels/simd_targets.h"

#include "kernels/targets.h"
// Comes after targets.h.
#include <hwy/highway.h>

namespace spa {

SimdTargets FindSimdTargets() {
  SimdTargets found;
  const int64_t supported = hwy::SupportedTargets();
  // A better target has a lower bit.
  for (int64_t left = HWY_TARGETS; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    found.compiled.emplace_back(hwy::TargetName(target));
    if (found.used.empty() && (target & supported) != 0) found.used = found.compiled.back();
  }
  return found;
}

}  // namespace spa
