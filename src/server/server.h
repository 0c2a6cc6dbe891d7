// The HTTP server: answers requests, shuts down. routes.h says at which addresses, http_checks.h to
// whom; the scheduler does the work.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "server/api_request.h"
#include "server/listener.h"
#include "server/metrics.h"
#include "server/routes.h"
#include "server/scheduler.h"
#include "server/server_options.h"

namespace spa {

class Server {
 public:
  // The engine must outlive the server, and nothing else may use it meanwhile. Throws Error if the
  // address cannot be used.
  Server(Engine& engine, const ServerOptions& options)
      : Server(engine, options, engine.PrepareCache(options.cache)) {}
  // With options.cache already prepared.
  Server(Engine& engine, const ServerOptions& options, SharedCache cache);
  ~Server();

  int port() const { return port_; }

  // Serves a connection that was made elsewhere, on this thread and to its end. Takes the socket.
  void Serve(int socket) { listener_.Serve(socket); }

  // Lets running requests finish for at most `grace`, fails the others, and closes.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  using Request = httplib::Request;
  using Response = httplib::Response;

  std::vector<HttpRoute> Routes();
  void SetHandlers();
  void Complete(Route route, const Request& http, const std::string& body, Response& out);
  // Throws ApiError unless the scheduler takes all of the request.
  void Submit(const ApiRequest& request, const std::shared_ptr<Mailbox>& mailbox, Response& out);
  // Waits for all choices and answers with one body.
  void Collect(const ApiRequest& request, Mailbox& mailbox, Response& out);
  void Stream(const ApiRequest& request, const std::shared_ptr<Mailbox>& mailbox,
              const Request& http, Response& out);
  void Log(const Request& http, const Response& out);

  Engine& engine_;
  ServerOptions options_;
  Metrics metrics_;
  Scheduler scheduler_;
  RouteTable routes_;
  Listener listener_;
  std::atomic<size_t> open_streams_{0};
  std::atomic<uint64_t> num_requests_{0};
  int port_ = 0;
  std::atomic<bool> ended_{false};  // the listener has stopped
  std::thread thread_;
};

}  // namespace spa
