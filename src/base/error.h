// Errors. spa::Error is thrown where files, options or requests are read; its message says what was
// found, what was expected and what to do. SPA_CHECK guards against our own bugs and is never
// reachable from user input; a failed one throws InternalError, so a server can fail the request
// and go on.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace spa {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}

  template <typename... Args>
  requires(sizeof...(Args) > 0) explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace spa

#define SPA_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::spa::CheckFailed(__FILE__, __LINE__, #condition))
