// The HTTP server: routes, keys, streaming, shutdown. The scheduler does the work.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "server/api.h"
#include "server/listener.h"
#include "server/metrics.h"
#include "server/scheduler.h"

namespace spa {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                      // 0: any free one
  std::vector<std::string> api_keys;    // empty: no key needed
  std::vector<std::string> origins;     // web pages of other hosts that may call us; "*": all
  std::string model_id;
  CacheSpec cache{.name = "spa", .options = {}};  // of requests that name none
  SchedulerOptions scheduler;
  ApiLimits limits;
  ListenerLimits listener;
  std::chrono::milliseconds request_time{0};  // per request, waiting included; 0: no limit
  std::vector<std::string> examples;     // questions the page offers
  std::string version;
  // Gets one line of JSON per request, without any of its text.
  std::function<void(const std::string& line)> log;
};

class Server {
 public:
  // The engine must outlive the server and belongs to it meanwhile. Throws Error if the address
  // cannot be used.
  Server(Engine& engine, const ServerOptions& options);
  ~Server();

  int port() const { return port_; }

  // Finishes what runs, at most `grace` long, tells everybody else, and closes.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;

  void AddRoutes();
  // All throw ApiError. A head must say clearly how long its body is, and that must be allowed.
  void CheckHead(const Request& http) const;
  void CheckOrigin(const Request& http, Response& out) const;
  void CheckKey(const Request& http) const;
  void Complete(Route route, const Request& http, const std::string& body, Response& out);
  // Waits for all choices and answers with one body.
  void Collect(const ApiRequest& request, const std::shared_ptr<Mailbox>& mailbox, Response& out);
  void Stream(const ApiRequest& request, const std::shared_ptr<Mailbox>& mailbox,
              const Request& http, Response& out);
  void Log(const Request& http, const Response& out);
  std::string PropsBody() const;
  std::string ModelsBody(bool list) const;

  Engine& engine_;
  ServerOptions options_;
  Metrics metrics_;
  Scheduler scheduler_;
  Listener listener_;
  std::atomic<size_t> open_streams_{0};
  std::atomic<uint64_t> num_requests_{0};
  int port_ = 0;
  std::atomic<bool> ended_{false};  // the listener does not listen any more
  std::thread thread_;
};

bool IsLoopback(const std::string& host);

}  // namespace spa
