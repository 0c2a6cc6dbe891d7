// Long lists of cases, thinned out under the sanitizers: they slow the kernels down tenfold and
// more, and what they look for does not depend on which prompt is decoded.
#pragma once

#include <cstddef>

namespace spa {

#ifdef SPA_SANITIZED
inline constexpr size_t kOneCaseOf = 8;
#else
inline constexpr size_t kOneCaseOf = 1;
#endif

inline bool RunsCase(size_t number) { return number % kOneCaseOf == 0; }

}  // namespace spa
