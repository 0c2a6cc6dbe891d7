#include "kernels/simd_targets.h"

#include "kernels/targets.h"
// Comes after targets.h.
#include <hwy/highway.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif
#if HWY_ARCH_X86_64 && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
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

// Linux gives a process tiles when it asks for them. SPA_AMX=0 does not ask.
bool ProcessHasAmx() {
#if HWY_ARCH_X86_64 && defined(__linux__)
  const char* wanted = std::getenv("SPA_AMX");
  if (wanted != nullptr && std::string_view(wanted) == "0") return false;
  unsigned a, b, c, d;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kTiles = 1u << 24, kInt8 = 1u << 25;
  if ((d & kTiles) == 0 || (d & kInt8) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

std::atomic<bool>& Amx() {
  static std::atomic<bool> has = ProcessHasAmx();
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
  if (found.used == hwy::TargetName(HWY_AVX3_DL) && HasAmx()) found.used += " with AMX";
  return found;
}

bool HasAvxVnni() { return AvxVnni().load(std::memory_order_relaxed); }

void SetAvxVnniForTest(bool has) { AvxVnni() = has; }

bool HasAmx() { return Amx().load(std::memory_order_relaxed); }

void SetAmxForTest(bool has) { Amx() = has; }

}  // namespace spa
