#include "policies/registry.h"

#include "base/error.h"
#include "policies/d2_cache.h"
#include "policies/dkv_cache.h"
#include "policies/dllm_cache.h"
#include "policies/elastic_cache.h"
#include "policies/fast_dllm.h"
#include "policies/none.h"
#include "policies/spa_options.h"

namespace spa {
namespace {

struct Entry {
  CacheInfo info;
  PolicyFactory (*make)(OptionReader& options, const PolicyContext& context);
};

PolicyFactory MakeNone(OptionReader&, const PolicyContext&) {
  return [] { return std::make_unique<NonePolicy>(); };
}

const std::vector<Entry>& Entries() {
  static const std::vector<Entry> entries = {
      {{"none", "every row, every layer, every step: exact", ""}, MakeNone},
      {{"spa", "SPA-Cache: rows whose singular proxy drifted, a budget per layer",
        "rho=1 scope=all"},
       MakeSpa},
      {{"dllm", "dLLM-Cache: prompt and answer at intervals, rows whose values turned between them",
        "prompt-interval=1 gen-interval=1"},
       MakeDllm},
      {{"fast-prefix", "Fast-dLLM: all rows once per block, then the block and what follows",
        "refresh=1"},
       MakeFastPrefix},
      {{"fast-dual", "Fast-dLLM: all rows once per block, then the block alone", "refresh=1"},
       MakeFastDual},
      {{"dkv-decode", "dKV-Cache: open rows and those just settled, all rows at intervals",
        "interval=1"},
       MakeDkvDecode},
      {{"dkv-greedy", "dKV-Cache: rows about to be settled, a window, those just settled",
        "interval=1"},
       MakeDkvGreedy},
      {{"d2", "d2Cache: sure positions near settled ones, and rows that attention flows from",
        "p=1 k=1000000"},
       MakeD2},
      {{"elastic", "Elastic-Cache: a window, the most attended rows; deep layers when those drift",
        "track=1000000"},
       MakeElastic},
  };
  return entries;
}

}  // namespace

const std::vector<CacheInfo>& Caches() {
  static const std::vector<CacheInfo> infos = [] {
    std::vector<CacheInfo> list;
    for (const Entry& entry : Entries()) list.push_back(entry.info);
    return list;
  }();
  return infos;
}

PreparedCache PrepareCache(const CacheSpec& spec, const PolicyContext& context) {
  for (const Entry& entry : Entries()) {
    if (entry.info.name != spec.name) continue;
    OptionReader options(spec);
    PolicyFactory make = entry.make(options, context);
    options.Finish();
    std::string description = spec.ToString();
    for (const std::string& note : options.notes()) description += ", " + note;
    return {.spec = spec, .make = std::move(make), .description = std::move(description)};
  }
  std::vector<std::string> names;
  for (const CacheInfo& info : Caches()) names.push_back(info.name);
  throw Error("there is no cache '{}': choose from {}", spec.name, fmt::join(names, ", "));
}

}  // namespace spa
