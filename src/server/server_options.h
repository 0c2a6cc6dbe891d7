// Server settings.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "server/api_request.h"
#include "server/listener.h"
#include "server/scheduler.h"

namespace spa {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                    // 0: any free one
  std::vector<std::string> api_keys;  // empty: no key needed
  std::vector<std::string> origins;   // other web origins that may call the API; "*": all
  std::string model_id;
  CacheSpec cache{.name = "spa", .options = {}};  // the default
  SchedulerOptions scheduler;
  ApiLimits limits;
  ListenerLimits listener;
  std::chrono::milliseconds request_time{0};  // per request, waiting included; 0: no limit
  std::vector<std::string> examples;          // questions the page offers
  std::string version;
  // Gets one line of JSON per request, without the text of prompt or answer.
  std::function<void(const std::string& line)> log;
};

}  // namespace spa
