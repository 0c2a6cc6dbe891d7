// The one table of addresses. Routing, keys, 405 answers and the names in metrics and log come from
// it.
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
  std::string path;    // a * at its end stands for anything: http.matches[1] has it
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
  // Makes the listener answer all of them. The table must outlive it.
  void Register(Listener& listener, size_t body_bytes) const;
  // The answer to a request that no route took, or that could not be read.
  void SendUnrouted(const httplib::Request& http, httplib::Response& out) const;

 private:
  std::vector<HttpRoute> routes_;
};

// Both leave the reason for the log.
void SendError(httplib::Response& out, const ApiError& error);
// The request was not read to its end: the connection closes behind this answer.
void SendErrorAndClose(httplib::Response& out, const ApiError& error);

}  // namespace spa
