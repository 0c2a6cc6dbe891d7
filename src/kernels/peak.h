// The machine's measured peak rates, to compare the kernels with. A speed on a shared machine means
// little; its ratio to a peak measured in the same process means a lot.
#pragma once

#include "base/thread_pool.h"

namespace spa {

// Fused multiply-adds in registers on all threads together; one counts as two operations.
double MeasureFmaPeakGflops(ThreadPool& pool);

// Plain sequential reads of a buffer larger than the caches, all threads together, in GB/s.
double MeasureReadBandwidth(ThreadPool& pool);

}  // namespace spa
