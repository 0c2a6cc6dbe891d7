// Random numbers as a pure function of their purpose. A draw depends on (seed, step, position,
// element) only, so neither threads nor the rest of a batch can change it.
#pragma once

#include <cstdint>

namespace spa {

// SplitMix64's finaliser: every input bit reaches every output bit.
constexpr uint64_t MixBits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class RandomStream {
 public:
  constexpr RandomStream(uint64_t seed, uint64_t step, uint64_t position)
      : key_(MixBits(MixBits(MixBits(seed + kGamma) + step * kGamma) + position * kGamma)) {}

  constexpr uint64_t Bits(uint64_t element) const { return MixBits(key_ + (element + 1) * kGamma); }

  // Uniform in (0, 1): 53 bits, never 0 and never 1, so its logarithm is finite.
  constexpr double Uniform(uint64_t element) const {
    return (static_cast<double>(Bits(element) >> 11) + 0.5) * 0x1.0p-53;
  }

 private:
  static constexpr uint64_t kGamma = 0x9e3779b97f4a7c15ULL;
  uint64_t key_;
};

}  // namespace spa
