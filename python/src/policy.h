// A cache written in Python: spa.CachePolicy (spa/policy.py) behind the engine's CachePolicy. It
// sees matrices of the engine without a copy, for the time of a call.
#pragma once

#include <nanobind/nanobind.h>

#include "policies/registry.h"

namespace spa::python {

namespace nb = nanobind;

// The policies that `make`, called without arguments, returns. Singular proxies are prepared if
// they ask for them. To be called without the GIL; takes it where it needs it.
PolicyFactory PythonPolicies(std::shared_ptr<nb::object> make, const PolicyContext& context);

// An object of Python that may be dropped by a thread without the GIL.
std::shared_ptr<nb::object> Share(nb::object object);

void BindPolicy(nb::module_& module);

}  // namespace spa::python
