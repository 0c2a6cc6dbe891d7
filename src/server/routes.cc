#include "server/routes.h"

#include "server/request_log.h"

namespace spa {
namespace {

using httplib::Request;
using httplib::Response;

bool Matches(const HttpRoute& route, const std::string& path) {
  if (!route.path.ends_with('*')) return path == route.path;
  const size_t fixed = route.path.size() - 1;
  return path.size() > fixed && path.compare(0, fixed, route.path, 0, fixed) == 0;
}

// As the listener wants it.
std::string Pattern(const HttpRoute& route) {
  if (!route.path.ends_with('*')) return route.path;
  return route.path.substr(0, route.path.size() - 1) + "(.+)";
}

void Answer(const HttpRoute& route, const Request& http, const std::string& body, Response& out) {
  Listener::KeepOpen();
  try {
    route.handle(http, body, out);
  } catch (const ApiError& error) {
    SendError(out, error);
  }
}

}  // namespace

const HttpRoute* RouteTable::Find(const std::string& path) const {
  for (const HttpRoute& route : routes_) {
    if (Matches(route, path)) return &route;
  }
  return nullptr;
}

void RouteTable::Register(Listener& listener, size_t body_bytes) const {
  for (const HttpRoute& route : routes_) {
    if (route.method == "GET") {
      listener.Get(Pattern(route),
                   [&route](const Request& http, Response& out) { Answer(route, http, "", out); });
      continue;
    }
    listener.Post(Pattern(route), [&route, body_bytes](const Request& http, Response& out,
                                                       const httplib::ContentReader& read) {
      std::string body;
      const bool whole = read([&](const char* data, size_t size) {
        body.append(data, size);
        return body.size() <= body_bytes;
      });
      if (whole) return Answer(route, http, body, out);
      const bool large = body.size() > body_bytes || out.status == 413;
      SendErrorAndClose(out,
                        large ? ApiError(413, "invalid_request_error", "the body is too large")
                              : ApiError(400, "invalid_request_error", "the body is not complete"));
    });
  }
}

void RouteTable::SendUnrouted(const Request& http, Response& out) const {
  const HttpRoute* route = Find(http.path);
  if (out.status == 404 && route != nullptr && route->method != http.method) {
    out.set_header("Allow", route->method);
    SendErrorAndClose(out, ApiError(405, "invalid_request_error",
                                    http.path + " takes " + route->method + ", not " + http.method,
                                    {}, "method_not_allowed"));
  } else if (out.status == 404) {
    SendErrorAndClose(
        out,
        ApiError(404, "invalid_request_error",
                 "not found: the API is at /v1/chat/completions, /v1/completions and /v1/models",
                 {}, "unknown_url"));
  } else if (out.status == 413) {
    SendErrorAndClose(out, ApiError(413, "invalid_request_error", "the body is too large"));
  } else {
    SendErrorAndClose(out, ApiError(out.status, "invalid_request_error", "malformed request"));
  }
}

void SendError(Response& out, const ApiError& error) {
  CurrentRequest().Explain(error.what());
  out.status = error.status;
  out.set_content(error.Body(), "application/json");
  if (error.status == 401) out.set_header("WWW-Authenticate", "Bearer");
}

void SendErrorAndClose(Response& out, const ApiError& error) {
  SendError(out, error);
  out.set_header("Connection", "close");
}

}  // namespace spa
