// Encoders of the K-quants, 256 elements to one block. They minimise the plain squared error of a
// super-block: first the best real scale (and minimum) of every part by trying a range of grids
// with a least-squares fit on each, then the nearest integer scales and their neighbours, and last
// the common factor refitted to the result.
#pragma once

#include <cstddef>

namespace spa {

void EncodeQ4_K(const float* src, std::byte* block);
void EncodeQ6_K(const float* src, std::byte* block);

}  // namespace spa
