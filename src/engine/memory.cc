#include "engine/memory.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/error.h"

namespace spa {
namespace {

constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

// The most rows there can be: the canvas may grow, and a block may have shadow rows.
size_t RowsOf(size_t prompt_tokens, const DecodeOptions& options) {
  const size_t end =
      std::max(CanvasEnd(prompt_tokens, options), prompt_tokens + MaxCanvas(options));
  return end + (options.wino ? options.block_length : 0);
}

MemoryNeed NeedWith(const Engine& engine, KvType kv_type, size_t num_rows,
                    const DecodeOptions& options, const PreparedCache& cache) {
  size_t prompt = num_rows - std::min(num_rows, RowsOf(0, options));
  // The prompt's tail may share the first block, which is then kept whole.
  if (options.blocks_from_start) prompt -= std::min(prompt, options.block_length);
  const ModelConfig& config = engine.config();
  const auto policy = cache.make();
  MemoryNeed need{
      .state = SequenceState::BytesFor(config, num_rows, SequenceState::PromptRows(config, prompt),
                                       kv_type, *policy),
      .rows = num_rows};
  if (config.self_conditioning) {
    need.state += options.block_length * config.model_dim * sizeof(float);
  }
  // The weights of a layer's attention, while a policy looks at them.
  if (policy->keeps().attention) need.state += num_rows * num_rows * sizeof(float);
  // The logits of the positions read: of the block, or in a first step, or of a block that masks
  // push on, of the whole canvas.
  const bool whole = options.first_threshold || options.grow_to > 0;
  const size_t positions = whole ? MaxCanvas(options) : options.block_length;
  const size_t logits = positions * config.vocab_rows * sizeof(float);
  if (options.klass) need.state += logits;  // their distributions
  if (options.cfg_scale > 0.0) {
    // Guidance: two sequences, and the logits of both until they are combined.
    need.state = 2 * (need.state + logits);
    need.rows *= 2;
  }
  return need;
}

// The most rows that fit, prompt included.
size_t RowsThatFit(const Engine& engine, size_t num_rows, const DecodeOptions& options,
                   const PreparedCache& cache, size_t available) {
  size_t fits = 0, too_many = num_rows;
  while (fits + 1 < too_many) {
    const size_t rows = fits + (too_many - fits) / 2;
    const MemoryNeed need = NeedWith(engine, engine.kv_type(), rows, options, cache);
    (TotalBytes(engine, need) <= available ? fits : too_many) = rows;
  }
  return fits;
}

// The first number of a file; nothing if there is none, as in "max".
size_t ReadNumber(const std::filesystem::path& file) {
  size_t number = kUnlimited;
  std::ifstream in(file);
  if (!(in >> number)) return kUnlimited;
  return number;
}

// The number after a name, in a file of such lines.
size_t ReadNamed(const std::filesystem::path& file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    size_t number = 0;
    if (words >> word >> number && word == name) return number;
  }
  return 0;
}

// What a control group has left. Its page cache can be dropped when memory is short.
size_t LeftIn(const std::filesystem::path& group, const char* limit_file, const char* usage_file,
              const char* droppable) {
  const size_t limit = ReadNumber(group / limit_file);
  const size_t usage = ReadNumber(group / usage_file);
  if (limit == kUnlimited || usage == kUnlimited) return kUnlimited;
  const size_t used = usage - std::min(usage, ReadNamed(group / "memory.stat", droppable));
  return limit - std::min(limit, used);
}

}  // namespace

MemoryNeed NeedOf(const Engine& engine, size_t prompt_tokens, const DecodeOptions& options,
                  const PreparedCache& cache) {
  return NeedWith(engine, engine.kv_type(), RowsOf(prompt_tokens, options), options, cache);
}

size_t WorkspaceBytes(const Engine& engine, size_t num_rows) {
  return Transformer::WorkspaceBytes(engine.config(), num_rows);
}

size_t TotalBytes(const Engine& engine, const MemoryNeed& need) {
  return need.state + WorkspaceBytes(engine, need.rows);
}

void CheckMemory(Engine& engine, size_t prompt_tokens, const DecodeOptions& options,
                 const PreparedCache& cache, size_t available) {
  const MemoryNeed need = NeedOf(engine, prompt_tokens, options, cache);
  const size_t rows = RowsOf(prompt_tokens, options);
  if (TotalBytes(engine, need) <= available) return;
  std::vector<std::string> ways;
  const auto offer = [&](const std::string& flag, const MemoryNeed& other) {
    const size_t bytes = TotalBytes(engine, other);
    if (bytes <= available) ways.push_back(fmt::format("{} ({})", flag, FormatBytes(bytes)));
  };
  for (const KvType type : {KvType::kF16, KvType::kF16Q8}) {
    offer(fmt::format("--kv {}", NameOf(type)), NeedWith(engine, type, rows, options, cache));
  }
  for (const char* name : {"fast-dual", "none"}) {
    const SharedCache other = engine.PrepareCache({.name = name, .options = {}});
    offer(fmt::format("--cache {}", name),
          NeedWith(engine, engine.kv_type(), rows, options, *other));
  }
  if (const size_t fit = RowsThatFit(engine, rows, options, cache, available); fit > 0) {
    ways.push_back(fmt::format("at most {} tokens of prompt and answer", fit));
  }
  throw Error("{} tokens of prompt and answer need {} with the cache {}, and {} is left; {}", rows,
              FormatBytes(TotalBytes(engine, need)), cache.spec.ToString(), FormatBytes(available),
              ways.empty() ? "nothing smaller would fit"
                           : fmt::format("it would fit with {}", fmt::join(ways, ", or ")));
}

size_t AvailableMemory(const std::filesystem::path& proc, const std::filesystem::path& cgroups) {
  size_t left = ReadNamed(proc / "meminfo", "MemAvailable:") * 1024;
  if (left == 0) left = kUnlimited;  // not Linux: unknown
  std::ifstream groups(proc / "self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/path" or "0::/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers != "memory") continue;
    const std::filesystem::path root = v2 ? cgroups : cgroups / "memory";
    // The limits of parent groups apply as well.
    for (auto path = std::filesystem::path(line.substr(second + 1)).relative_path();;
         path = path.parent_path()) {
      left =
          std::min(left, v2 ? LeftIn(root / path, "memory.max", "memory.current", "inactive_file")
                            : LeftIn(root / path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                     "total_inactive_file"));
      if (path.empty()) break;
    }
  }
  return left;
}

size_t ResidentBytes() {
  size_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t ParseBytes(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  double scale = unit.empty() ? 1.0 : 0.0;
  for (size_t i = 0; i < kUnits.size(); ++i) {
    const char letter = kUnits[i];
    if (unit.size() != 1 || (unit[0] | 0x20) != (letter | 0x20)) continue;
    scale = std::pow(1000.0, static_cast<double>(i + 1));
  }
  const double bytes = number * scale;
  if (error != std::errc() || !(bytes >= 1.0 && bytes < 1e18)) {
    throw Error("'{}' is not an amount of memory: write 512M or 2G", text);
  }
  return static_cast<size_t>(bytes);
}

std::string FormatBytes(size_t bytes) {
  constexpr const char* kNames[] = {"B", "kB", "MB", "GB", "TB"};
  double number = static_cast<double>(bytes);
  size_t unit = 0;
  while (number >= 1000.0 && unit + 1 < std::size(kNames)) {
    number /= 1000.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", number, kNames[unit]);
}

}  // namespace spa
