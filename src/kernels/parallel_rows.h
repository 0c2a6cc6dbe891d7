// Row-wise work over the pool, in tasks large enough to be worth handing out.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/thread_pool.h"

namespace spa {

// Calls fn(row) for every row in [0, num_rows). cols measures the work of one row.
template <typename Fn>
void ParallelRows(ThreadPool& pool, size_t num_rows, size_t cols, const Fn& fn) {
  // 8K elements take a few microseconds, several times what waking a worker costs.
  constexpr size_t kTaskElements = 8192;
  const size_t rows_per_task = std::max<size_t>(1, kTaskElements / std::max<size_t>(1, cols));
  pool.ParallelFor((num_rows + rows_per_task - 1) / rows_per_task, [&](size_t task) {
    const size_t end = std::min(num_rows, (task + 1) * rows_per_task);
    for (size_t row = task * rows_per_task; row < end; ++row) fn(row);
  });
}

}  // namespace spa
