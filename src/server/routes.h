// The route table. Routing, keys, 405 responses and the names in metrics and log come from it.
#pragma once

#include <httplib.h>

#include <functional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/listener.h"

namespace spa {

struct HttpRoute {
  std::string method;  // GET or POST
  std::string path;    // may end in *, which matches anything: http.matches[1]
  bool needs_key = true;
  // May throw ApiError. `body` is empty for GET.
  std::function<void(const httplib::Request& http, const std::string& body, httplib::Response& out)>
      handle;
};

class RouteTable {
 public:
  explicit RouteTable(std::vector<HttpRoute> routes) : routes_(std::move(routes)) {}

  // nullptr if there is nothing at this path.
  const HttpRoute* Find(const std::string& path) const;
  // Registers all routes. The table must outlive the listener.
  void Register(Listener& listener, size_t body_bytes) const;
  // The response to a request that no route took or that could not be read.
  void SendUnrouted(const httplib::Request& http, httplib::Response& out) const;

 private:
  std::vector<HttpRoute> routes_;
};

// Both note the reason for the log.
void SendError(httplib::Response& out, const ApiError& error);
// The request was not read to its end, so the connection is closed after this response.
void SendErrorAndClose(httplib::Response& out, const ApiError& error);

}  // namespace spa
