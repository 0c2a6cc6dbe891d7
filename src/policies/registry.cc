#include "policies/registry.h"

#include <algorithm>
#include <mutex>

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
  MakeCache make;
};

PolicyFactory MakeNone(OptionReader&, const PolicyContext&) {
  return [] { return std::make_unique<NonePolicy>(); };
}

const std::vector<Entry>& Entries() {
  static const std::vector<Entry> entries = {
      {{"none", "every row, every layer, every step: exact", ""}, MakeNone},
      {{"spa", "SPA-Cache: the rows that drifted most, up to a budget per layer",
        "rho=1 min-drift=0 scope=all", SpaOptionTable()},
       MakeSpa},
      {{"block", "Block diffusion: keeps finished blocks, computes only the current one; exact",
        "refresh=1", BlockOptionTable()},
       MakeBlock},
      {{"dllm",
        "dLLM-Cache: prompt and answer at intervals, between them the rows whose values turned",
        "prompt-interval=1 gen-interval=1", DllmOptionTable()},
       MakeDllm},
      {{"fast-prefix", "Fast-dLLM: all rows once per block, then the block and what follows",
        "refresh=1", FastOptionTable()},
       MakeFastPrefix},
      {{"fast-dual", "Fast-dLLM: all rows once per block, then only the block", "refresh=1",
        FastOptionTable()},
       MakeFastDual},
      {{"dkv-decode", "dKV-Cache: open and just settled rows; all rows at intervals", "interval=1",
        DkvDecodeOptionTable()},
       MakeDkvDecode},
      {{"dkv-greedy",
        "dKV-Cache: rows about to be settled, a window around them, rows just settled",
        "interval=1", DkvGreedyOptionTable()},
       MakeDkvGreedy},
      {{"d2", "d2Cache: sure positions near settled ones, and the most attended rows",
        "p=1 k=1000000", D2OptionTable()},
       MakeD2},
      {{"elastic",
        "Elastic-Cache: a window and the most attended rows; deep layers when those drift",
        "track=1000000", ElasticOptionTable()},
       MakeElastic},
  };
  return entries;
}

// Added by AddCache.
std::mutex added_mutex;
std::vector<Entry>& Added() {
  static std::vector<Entry> added;
  return added;
}

Entry FindEntry(const std::string& name) {
  const std::lock_guard lock(added_mutex);
  std::vector<std::string> names;
  for (const auto* entries : {&Entries(), static_cast<const std::vector<Entry>*>(&Added())}) {
    for (const Entry& entry : *entries) {
      if (entry.info.name == name) return entry;
      names.push_back(entry.info.name);
    }
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

CacheInfo FindCache(const std::string& name) { return FindEntry(name).info; }

void AddCache(CacheInfo info, MakeCache make) {
  if (std::ranges::find(Caches(), info.name, &CacheInfo::name) != Caches().end()) {
    throw Error("there is a cache '{}' already: choose another name", info.name);
  }
  std::vector<Entry> replaced;  // destroyed after the lock is released
  const std::lock_guard lock(added_mutex);
  const auto same = std::ranges::find_if(
      Added(), [&](const Entry& entry) { return entry.info.name == info.name; });
  if (same != Added().end()) {
    replaced.push_back(std::exchange(*same, {std::move(info), std::move(make)}));
  } else {
    Added().push_back({std::move(info), std::move(make)});
  }
}

void RemoveAddedCaches() {
  std::vector<Entry> removed;
  const std::lock_guard lock(added_mutex);
  removed.swap(Added());
}

PreparedCache PrepareCache(const CacheSpec& spec, const PolicyContext& context) {
  const Entry entry = FindEntry(spec.name);
  OptionReader options(spec, entry.info.options);
  PolicyFactory make = entry.make(options, context);
  std::string description = spec.ToString();
  for (const std::string& note : options.notes()) description += ", " + note;
  return {.spec = spec, .make = std::move(make), .description = std::move(description)};
}

}  // namespace spa
