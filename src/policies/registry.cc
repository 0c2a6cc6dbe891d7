#include "policies/registry.h"

#include "base/error.h"
#include "policies/block_cache.h"
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
        "rho=1 scope=all", SpaOptionTable()},
       MakeSpa},
      {{"block", "Block diffusion: finished blocks are kept, a step costs its block; exact there",
        "refresh=1", BlockOptionTable()},
       MakeBlock},
      {{"dllm", "dLLM-Cache: prompt and answer at intervals, rows whose values turned between them",
        "prompt-interval=1 gen-interval=1", DllmOptionTable()},
       MakeDllm},
      {{"fast-prefix", "Fast-dLLM: all rows once per block, then the block and what follows",
        "refresh=1", FastOptionTable()},
       MakeFastPrefix},
      {{"fast-dual", "Fast-dLLM: all rows once per block, then the block alone", "refresh=1",
        FastOptionTable()},
       MakeFastDual},
      {{"dkv-decode", "dKV-Cache: open rows and those just settled, all rows at intervals",
        "interval=1", DkvDecodeOptionTable()},
       MakeDkvDecode},
      {{"dkv-greedy", "dKV-Cache: rows about to be settled, a window, those just settled",
        "interval=1", DkvGreedyOptionTable()},
       MakeDkvGreedy},
      {{"d2", "d2Cache: sure positions near settled ones, and rows that attention flows from",
        "p=1 k=1000000", D2OptionTable()},
       MakeD2},
      {{"elastic", "Elastic-Cache: a window, the most attended rows; deep layers when those drift",
        "track=1000000", ElasticOptionTable()},
       MakeElastic},
  };
  return entries;
}

const Entry& FindEntry(const std::string& name) {
  std::vector<std::string> names;
  for (const Entry& entry : Entries()) {
    if (entry.info.name == name) return entry;
    names.push_back(entry.info.name);
  }
  throw Error("there is no cache '{}'{}: choose from {}", name, DidYouMean(name, names),
              fmt::join(names, ", "));
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

const CacheInfo& FindCache(const std::string& name) { return FindEntry(name).info; }

PreparedCache PrepareCache(const CacheSpec& spec, const PolicyContext& context) {
  const Entry& entry = FindEntry(spec.name);
  OptionReader options(spec, entry.info.options);
  PolicyFactory make = entry.make(options, context);
  std::string description = spec.ToString();
  for (const std::string& note : options.notes()) description += ", " + note;
  return {.spec = spec, .make = std::move(make), .description = std::move(description)};
}

}  // namespace spa
