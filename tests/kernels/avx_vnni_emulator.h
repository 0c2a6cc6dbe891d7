// Lets a processor without AVX-VNNI run its product of bytes: the illegal instruction is caught and
// done by plain loops on the registers the signal saved. Linux on x86-64 only.
#pragma once

#if defined(__linux__) && defined(__x86_64__)
#define SPA_EMULATES_AVX_VNNI 1

#include <cpuid.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/kernels/instruction_catcher.h"

namespace spa {

class AvxVnniEmulator : public InstructionCatcher {
 public:
  AvxVnniEmulator() : InstructionCatcher(Emulate) {
    unsigned size = 0, offset = 0, c = 0, d = 0;
    __get_cpuid_count(0xd, 2, &size, &offset, &c, &d);
    high_halves_at_ = offset;
  }

 private:
  // The registers as XSAVE lays them out: the low halves of all YMM, and elsewhere the high ones. A
  // kind that was all zeros may not have been written.
  class SavedRegisters {
   public:
    explicit SavedRegisters(void* area)
        : area_(static_cast<std::byte*>(area)), high_(area_ + high_halves_at_) {
      uint64_t written;
      std::memcpy(&written, area_ + kWritten, sizeof(written));
      if ((written & kLowHalves) == 0) std::memset(area_ + kLow, 0, 16 * kHalf);
      if ((written & kHighHalves) == 0) std::memset(high_, 0, 16 * kHalf);
      written |= kLowHalves | kHighHalves;
      std::memcpy(area_ + kWritten, &written, sizeof(written));
    }
    void Load(size_t i, void* to) const {
      std::memcpy(to, area_ + kLow + i * kHalf, kHalf);
      std::memcpy(static_cast<std::byte*>(to) + kHalf, high_ + i * kHalf, kHalf);
    }
    void Store(size_t i, const void* from) {
      std::memcpy(area_ + kLow + i * kHalf, from, kHalf);
      std::memcpy(high_ + i * kHalf, static_cast<const std::byte*>(from) + kHalf, kHalf);
    }

   private:
    static constexpr size_t kHalf = 16, kLow = 160, kWritten = 512;  // bytes
    static constexpr uint64_t kLowHalves = 2, kHighHalves = 4;
    std::byte* area_;
    std::byte* high_;
  };

  static size_t Emulate(mcontext_t& machine, const uint8_t* code) {
    // VEX.256.66.0F38.W0 50 /r of three registers. Register numbers have their high bit in the
    // prefix, inverted.
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x87) != 5 || code[3] != 0x50 ||
        (code[4] & 0xc0) != 0xc0) {
      return 0;
    }
    const size_t sum = (code[4] >> 3 & 7) + ((code[1] & 0x80) == 0 ? 8 : 0);
    const size_t factor = (code[4] & 7) + ((code[1] & 0x20) == 0 ? 8 : 0);
    const size_t other = ~code[2] >> 3 & 15;
    SavedRegisters registers(machine.fpregs);
    int32_t sums[8];
    uint8_t u[32];
    int8_t s[32];
    registers.Load(sum, sums);
    registers.Load(other, u);
    registers.Load(factor, s);
    for (size_t i = 0; i < 32; ++i) sums[i / 4] += u[i] * s[i];
    registers.Store(sum, sums);
    return 5;
  }

  static inline size_t high_halves_at_;  // in what XSAVE writes; slow to ask in a virtual machine
};

}  // namespace spa

#else
#define SPA_EMULATES_AVX_VNNI 0
#endif
