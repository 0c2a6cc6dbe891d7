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

}  // namespace spa
