// Which instruction sets the kernels are compiled for, and which one this processor gets.
#pragma once

#include <string>
#include <vector>

namespace spa {

struct SimdTargets {
  std::vector<std::string> compiled;  // best first
  std::string used;
};

SimdTargets FindSimdTargets();

// Whether AVX2 has AVX-VNNI beside it: products of bytes as those of AVX-512, in 256 bits. Highway
// knows no such target.
bool HasAvxVnni();
void SetAvxVnniForTest(bool has);

// Whether AVX3_DL has AMX beside it, and the system lets this process use its tiles.
bool HasAmx();
void SetAmxForTest(bool has);

}  // namespace spa
