// What the log line of this thread's request will say.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "server/mailbox.h"

namespace spa {

struct RequestLog {
  std::chrono::steady_clock::time_point start;
  std::string id;
  std::string error = {};
  nlohmann::ordered_json more = {};  // an object, or nothing

  double seconds() const;
  // Why it was refused or failed; the first reason stays.
  void Explain(const std::string& why);
  // How one of its generations ended.
  void Add(const Event& end);
  // The line. `method` and `path` are our own names, not what the client sent.
  std::string Line(const std::string& method, const std::string& path, int status) const;
};

// A thread serves one request at a time.
RequestLog& CurrentRequest();

}  // namespace spa
