// The caches by name. A policy is added with one file and one line here; tests that must hold for
// all policies run over this list.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/progress.h"
#include "model/model_file.h"
#include "model/weights.h"
#include "policies/options.h"
#include "transformer/cache_policy.h"

namespace spa {

// What a policy may need from the loaded model.
struct PolicyContext {
  const ModelFile* file = nullptr;
  const Weights* weights = nullptr;
  ThreadPool* pool = nullptr;
  // Long preparations (singular proxies) report their progress here: share done in [0, 1].
  Progress progress;
  // Proxies of a model with more value weights than this are used if they are stored, but not
  // computed.
  size_t max_proxy_weights = std::numeric_limits<size_t>::max();
};

struct CacheInfo {
  std::string name;
  std::string summary;       // one line
  std::string full_options;  // options that make it recompute every row at every step
  std::vector<OptionInfo> options = {};
};

const std::vector<CacheInfo>& Caches();  // of this library
// Throws Error naming the caches that exist.
CacheInfo FindCache(const std::string& name);

// A cache prepared for a model: the request, the factory of its policies, and an exact description
// of the settings in force, so that two runs can be compared.
struct PreparedCache {
  CacheSpec spec;
  PolicyFactory make;
  std::string description;  // "spa(rank=64), budget of profile-3f2a.json"
};

// Reads the options and returns the factory of a cache's policies.
using MakeCache = std::function<PolicyFactory(OptionReader& options, const PolicyContext& context)>;
// Adds a cache from outside this library under its name, for all threads. It replaces one added
// before under that name; Error if the name is one of Caches().
void AddCache(CacheInfo info, MakeCache make);
void RemoveAddedCaches();

// Throws Error for an unknown cache or option.
PreparedCache PrepareCache(const CacheSpec& spec, const PolicyContext& context);

}  // namespace spa
