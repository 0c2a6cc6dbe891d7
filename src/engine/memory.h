// How much memory a generation will need, before it starts, and how much the machine has left.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace spa {

struct MemoryNeed {
  size_t state = 0;  // bytes it keeps from its first step to its last
  size_t rows = 0;   // rows it brings into a step: all steps share one workspace
};

// An upper bound, known before anything is computed.
MemoryNeed NeedOf(const Engine& engine, size_t prompt_tokens, const DecodeOptions& options,
                  const PreparedCache& cache);
// The workspace of a step over this many rows, summed over all generations.
size_t WorkspaceBytes(const Engine& engine, size_t num_rows);
// State and workspace of a generation alone.
size_t TotalBytes(const Engine& engine, const MemoryNeed& need);

// Throws Error with the numbers, and with what would fit, unless the generation fits alone.
void CheckMemory(Engine& engine, size_t prompt_tokens, const DecodeOptions& options,
                 const PreparedCache& cache, size_t available);

// How much more this process can take before the machine or one of its control groups runs short.
// The folders are the system's; tests pass their own.
size_t AvailableMemory(const std::filesystem::path& proc = "/proc",
                       const std::filesystem::path& cgroups = "/sys/fs/cgroup");
size_t ResidentBytes();

// "512M", "2G", "1.5G", "1000000": units of 1000. Throws Error for anything else.
size_t ParseBytes(std::string_view text);
std::string FormatBytes(size_t bytes);  // "1.5 GB", in the same units

}  // namespace spa
