#include "policies/fast_dllm.h"

namespace spa {
namespace {

PolicyFactory MakeFast(bool dual, OptionReader& reader) {
  const FastOptions options{.dual = dual, .refresh = reader.Count("refresh", 0)};
  return [options] { return std::make_unique<FastPolicy>(options); };
}

}  // namespace

std::vector<OptionInfo> FastOptionTable() {
  return {OptionInfo::Count("refresh", 0, 1 << 20, "0: once per block",
                            "Recompute all rows every this many steps of a block")};
}

PolicyFactory MakeFastPrefix(OptionReader& reader, const PolicyContext&) {
  return MakeFast(false, reader);
}
PolicyFactory MakeFastDual(OptionReader& reader, const PolicyContext&) {
  return MakeFast(true, reader);
}

}  // namespace spa
