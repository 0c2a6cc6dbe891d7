// Lets a processor without AMX run its tiles of bytes, with the conditions under which a processor
// refuses them. Linux on x86-64 only.
#pragma once

#if defined(__linux__) && defined(__x86_64__)
#define SPA_EMULATES_AMX 1

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/kernels/instruction_catcher.h"

namespace spa {

class AmxEmulator : public InstructionCatcher {
 public:
  AmxEmulator() : InstructionCatcher(Emulate) {}

 private:
  struct Tile {
    size_t rows = 0, row_bytes = 0;
    uint8_t bytes[16][64] = {};
  };
  struct Tiles {
    bool configured = false;
    Tile tile[8];
  };

  // The memory operand behind a ModRM byte; `length` becomes that of both.
  struct Address {
    uintptr_t base = 0, stride = 0;
    size_t length = 0;
  };
  static Address Decode(const mcontext_t& machine, const uint8_t* code) {
    constexpr int kRegisters[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                    REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                    REG_R12, REG_R13, REG_R14, REG_R15};
    const auto value = [&](size_t number) {
      return static_cast<uintptr_t>(machine.gregs[kRegisters[number]]);
    };
    // Register numbers have their high bit in the prefix, inverted.
    const size_t high_index = (code[1] & 0x40) == 0 ? 8 : 0;
    const size_t high_base = (code[1] & 0x20) == 0 ? 8 : 0;
    const uint8_t* p = code + 4;
    const uint8_t modrm = *p++;
    const size_t mode = modrm >> 6;
    Address address;
    if ((modrm & 7) == 4) {
      const uint8_t sib = *p++;
      const size_t index = (sib >> 3 & 7) + high_index;
      if ((sib & 7) == 5 && mode == 0) return {};  // no base: not written by a compiler here
      address.base = value((sib & 7) + high_base);
      if (index != 4) address.stride = value(index) << (sib >> 6);
    } else {
      if ((modrm & 7) == 5 && mode == 0) return {};
      address.base = value((modrm & 7) + high_base);
    }
    if (mode == 1) {
      address.base += static_cast<uintptr_t>(static_cast<int8_t>(*p));
      p += 1;
    } else if (mode == 2) {
      int32_t offset;
      std::memcpy(&offset, p, sizeof(offset));
      address.base += static_cast<uintptr_t>(offset);
      p += 4;
    }
    address.length = static_cast<size_t>(p - code - 4);
    return address;
  }

  static bool Configure(const uint8_t* shapes, Tiles& tiles) {
    if (shapes[0] != 1 || shapes[1] != 0) return false;
    for (size_t i = 2; i < 16; ++i) {
      if (shapes[i] != 0) return false;
    }
    tiles = {};
    for (size_t i = 0; i < 16; ++i) {
      uint16_t row_bytes;
      std::memcpy(&row_bytes, shapes + 16 + 2 * i, sizeof(row_bytes));
      const uint8_t rows = shapes[48 + i];
      if (row_bytes > 64 || rows > 16 || (row_bytes == 0) != (rows == 0)) return false;
      if (i >= 8 && rows != 0) return false;
      if (i >= 8) continue;
      tiles.tile[i].rows = rows;
      tiles.tile[i].row_bytes = row_bytes;
    }
    tiles.configured = true;
    return true;
  }

  static bool Multiply(Tile& sums, const Tile& a, const Tile& b, bool b_is_signed) {
    if (&sums == &a || &sums == &b || &a == &b || a.rows != sums.rows ||
        a.row_bytes != 4 * b.rows || b.row_bytes != sums.row_bytes) {
      return false;
    }
    for (size_t m = 0; m < a.rows; ++m) {
      for (size_t n = 0; n < b.row_bytes / 4; ++n) {
        int32_t sum;
        std::memcpy(&sum, sums.bytes[m] + 4 * n, sizeof(sum));
        for (size_t k = 0; k < a.row_bytes; ++k) {
          const uint8_t weight = b.bytes[k / 4][4 * n + k % 4];
          const int w = b_is_signed ? static_cast<int8_t>(weight) : weight;
          sum += static_cast<int8_t>(a.bytes[m][k]) * w;
        }
        std::memcpy(sums.bytes[m] + 4 * n, &sum, sizeof(sum));
      }
    }
    return true;
  }

  static size_t Emulate(mcontext_t& machine, const uint8_t* code) {
    thread_local Tiles tiles;
    // VEX.128.pp.0F38.W0
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) return 0;
    const int prefix = code[2] & 3;
    constexpr int kNone = 0, kF3 = 2, kF2 = 3;
    const uint8_t modrm = code[4];
    const bool in_memory = modrm >> 6 != 3;
    Tile& tile = tiles.tile[modrm >> 3 & 7];
    if (code[3] == 0x49 && prefix == kNone && in_memory) {  // ldtilecfg
      const Address from = Decode(machine, code);
      if (from.length == 0) return 0;
      return Configure(reinterpret_cast<const uint8_t*>(from.base), tiles) ? 4 + from.length : 0;
    }
    if (!tiles.configured) return 0;
    if (code[3] == 0x49 && prefix == kNone && modrm == 0xc0) {  // tilerelease
      tiles = {};
      return 5;
    }
    if (code[3] == 0x49 && prefix == kF2 && !in_memory) {  // tilezero
      std::memset(tile.bytes, 0, sizeof(tile.bytes));
      return 5;
    }
    if (code[3] == 0x4b && in_memory && (modrm & 7) == 4 && (prefix == kF2 || prefix == kF3)) {
      const Address address = Decode(machine, code);
      for (size_t row = 0; row < tile.rows; ++row) {
        auto* memory = reinterpret_cast<uint8_t*>(address.base + row * address.stride);
        if (prefix == kF2) {  // tileloadd
          std::memcpy(tile.bytes[row], memory, tile.row_bytes);
        } else {  // tilestored
          std::memcpy(memory, tile.bytes[row], tile.row_bytes);
        }
      }
      return address.length == 0 || tile.rows == 0 ? 0 : 4 + address.length;
    }
    if (code[3] == 0x5e && !in_memory && (prefix == kF2 || prefix == kF3)) {  // tdpbssd, tdpbsud
      const Tile& a = tiles.tile[modrm & 7];
      const Tile& b = tiles.tile[~code[2] >> 3 & 7];
      return Multiply(tile, a, b, prefix == kF2) ? 5 : 0;
    }
    return 0;
  }
};

}  // namespace spa

#else
#define SPA_EMULATES_AMX 0
#endif
