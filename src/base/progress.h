// Progress of long work.
#pragma once

#include <functional>
#include <string_view>

namespace spa {

// What is being done and how much of it, in [0, 1].
using Progress = std::function<void(std::string_view what, double share)>;

}  // namespace spa
