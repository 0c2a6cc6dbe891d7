// Structs that callers fill in and that grow from version to version: they begin with their size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace spa {

// A copy with this version's fields; those an older caller does not have are zero. A newer caller's
// must be zero, as they would have no effect. `first` is the size of the first version. Throws
// Error otherwise.
template <typename T>
T CopySized(const T* given, size_t first, const char* name) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr size_t kMostNewer = 1024;  // more is no size but what was never set
  size_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (size < first || size > sizeof(T) + kMostNewer) {
    throw Error("{0}.size is not the size of {0}", name);
  }
  T copy = {};
  std::memcpy(&copy, given, std::min(size, sizeof(T)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) throw Error("{} sets a field that is newer than this library", name);
  }
  return copy;
}

}  // namespace spa
