#include "policies/registry.h"

#include "base/error.h"
#include "policies/none.h"
#include "policies/spa.h"

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

PolicyFactory MakePolicyFactory(const CacheSpec& spec, const PolicyContext& context) {
  for (const Entry& entry : Entries()) {
    if (entry.info.name != spec.name) continue;
    OptionReader options(spec);
    PolicyFactory factory = entry.make(options, context);
    options.Finish();
    return factory;
  }
  std::vector<std::string> names;
  for (const CacheInfo& info : Caches()) names.push_back(info.name);
  throw Error("there is no cache '{}': choose from {}", spec.name, fmt::join(names, ", "));
}

}  // namespace spa
