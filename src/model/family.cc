#include "model/family.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace spa {

#define SPA_FAMILY(name) const Family& name##Family();
#include "model/families/list.def"
#undef SPA_FAMILY

namespace {

std::vector<const Family*>& MutableFamilies() {
  static std::vector<const Family*> families = {
#define SPA_FAMILY(name) &name##Family(),
#include "model/families/list.def"
#undef SPA_FAMILY
  };
  return families;
}

}  // namespace

const std::vector<const Family*>& Families() { return MutableFamilies(); }

void AddFamily(const Family& family) { MutableFamilies().push_back(&family); }

const Family& FamilyNamed(std::string_view name) {
  const auto it = std::ranges::find(Families(), name, &Family::name);
  if (it == Families().end()) throw Error("there is no model family '{}'", name);
  return **it;
}

ModelConfig ShapeNamed(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Family* family : Families()) {
    for (const Family::Shape& shape : family->shapes) {
      names.push_back(shape.name);
      if (shape.name != name) continue;
      ModelConfig config = family->base;
      config.family = family->name;
      config.name = shape.name;
      shape.set(config);
      if (config.rope_dim == 0) config.rope_dim = config.head_dim;
      if (config.eos_id) config.stop_ids = {*config.eos_id};
      ValidateConfig(config, config.name);
      return config;
    }
  }
  throw Error("there is no shape '{}': choose from {}", name, fmt::join(names, ", "));
}

}  // namespace spa
