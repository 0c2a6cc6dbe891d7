// What is known of the request on this thread, for its line in the log.
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
  // What became of one of its generations.
  void Add(const Event& end);
  // The line. `method` and `path` are names of ours, not what the client sent.
  std::string Line(const std::string& method, const std::string& path, int status) const;
};

// A thread serves one request at a time.
RequestLog& CurrentRequest();

}  // namespace spa
