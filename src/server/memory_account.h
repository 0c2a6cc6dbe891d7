// Memory promised to running generations, so that together they never exceed the limit. Their
// states add up. They share one workspace, which grows with the rows of the largest step and is
// kept until released. Not thread-safe.
#pragma once

#include "engine/memory.h"

namespace spa {

class MemoryAccount {
 public:
  // The engine must outlive the account.
  MemoryAccount(const Engine& engine, size_t limit) : engine_(engine), limit_(limit) {}

  bool NeverFits(const MemoryNeed& need) const { return TotalBytes(engine_, need) > limit_; }
  // Whether it fits beside the running ones.
  bool Fits(const MemoryNeed& need) const;
  // Promises it. True if there is room only when the workspace is released first
  // (Transformer::ReleaseWorkspace).
  bool Take(const MemoryNeed& need);
  void Return(const MemoryNeed& need);
  // Bytes held for requests that have ended (PrefixStore). They may be dropped at any time.
  void SetHeld(size_t bytes) { held_ = bytes; }
  // Whether the held bytes and the kept workspace leave too little for running generations.
  bool Over() const { return promised() > limit_; }

  // Now, the workspace that is kept and the held bytes included.
  size_t promised() const;

 private:
  size_t Promise(size_t state, size_t rows) const;

  const Engine& engine_;
  size_t limit_;
  size_t state_ = 0, rows_ = 0;  // of what runs
  size_t kept_rows_ = 0;         // the workspace is large enough for these
  size_t held_ = 0;
};

}  // namespace spa
