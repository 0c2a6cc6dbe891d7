#include "server/memory_account.h"

#include <algorithm>

#include "base/error.h"

namespace spa {

size_t MemoryAccount::Promise(size_t state, size_t rows) const {
  return held_ + state + (rows == 0 ? 0 : WorkspaceBytes(engine_, rows));
}

bool MemoryAccount::Fits(const MemoryNeed& need) const {
  return Promise(state_ + need.state, rows_ + need.rows) <= limit_;
}

bool MemoryAccount::Take(const MemoryNeed& need) {
  SPA_CHECK(Fits(need));
  state_ += need.state;
  rows_ += need.rows;
  kept_rows_ = std::max(kept_rows_, rows_);
  if (promised() <= limit_) return false;
  kept_rows_ = rows_;
  return true;
}

void MemoryAccount::Return(const MemoryNeed& need) {
  state_ -= need.state;
  rows_ -= need.rows;
}

size_t MemoryAccount::promised() const { return Promise(state_, kept_rows_); }

}  // namespace spa
