// A loop that the compiler unrolls: an array indexed by its counter stays in registers.
#include <hwy/highway.h>

#include <utility>

#if defined(SPA_KERNELS_FOR_EACH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SPA_KERNELS_FOR_EACH_INL_H_
#undef SPA_KERNELS_FOR_EACH_INL_H_
#else
#define SPA_KERNELS_FOR_EACH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace spa::HWY_NAMESPACE {

// Calls fn(i) for every i below kCount.
template <class Fn, size_t... kIndex>
HWY_INLINE void ForEach(std::index_sequence<kIndex...>, const Fn& fn) {
  (fn(kIndex), ...);
}
template <size_t kCount, class Fn>
HWY_INLINE void ForEach(const Fn& fn) {
  ForEach(std::make_index_sequence<kCount>(), fn);
}

}  // namespace spa::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
