// Repacks stored weights into panels. Keeps every value: integers stay integers, scales keep the
// bits of the file.
#pragma once

#include "kernels/panels.h"

namespace spa {

// The shape of the panels that hold `source`, data allocated but not written.
void LayOutPanels(const MatrixSource& source, PackedMatrix::Panels& panels);

// Writes one panel. Channels past the last row become zeros.
void PackPanel(const MatrixSource& source, size_t panel, PackedMatrix::Panels& panels);

}  // namespace spa
