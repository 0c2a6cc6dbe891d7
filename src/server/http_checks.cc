#include "server/http_checks.h"

#include <arpa/inet.h>
#include <strings.h>

#include <algorithm>

#include "server/api_error.h"

namespace spa {
namespace {

// In constant time.
bool SameKey(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^
                  static_cast<unsigned char>(key[key.empty() ? 0 : i % key.size()]);
  }
  return difference == 0;
}

// "[::1]:8080" -> "::1"
std::string HostName(const std::string& host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

}  // namespace

bool IsLoopback(const std::string& host) {
  in_addr address;
  return host == "localhost" || host == "::1" ||
         (inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

void CheckHead(const httplib::Request& http, size_t body_bytes) {
  const std::string encoding = http.get_header_value("Transfer-Encoding");
  const size_t lengths = http.get_header_value_count("Content-Length");
  const std::string length = http.get_header_value("Content-Length");
  if (!encoding.empty() && encoding != "chunked") {
    throw ApiError(501, "not_supported_error",
                   "this transfer encoding is not supported: send the body plain or chunked");
  }
  if (http.get_header_value("Content-Type").starts_with("multipart/")) {
    throw ApiError(415, "invalid_request_error", "the body must be JSON");
  }
  const bool digits = std::ranges::all_of(length, [](char c) { return c >= '0' && c <= '9'; });
  if (lengths > 1 || !digits || (lengths == 1 && (length.empty() || !encoding.empty()))) {
    throw ApiError(400, "invalid_request_error", "the length of the body is ambiguous");
  }
  const bool wants_body = http.method == "POST" || http.method == "PUT" || http.method == "PATCH";
  if (wants_body && lengths == 0 && encoding.empty()) {
    throw ApiError(411, "invalid_request_error", "a body needs a Content-Length");
  }
  if (!wants_body && (!encoding.empty() || (lengths == 1 && length != "0"))) {
    throw ApiError(400, "invalid_request_error", "this request must not have a body");
  }
  if (length.size() > 18 || (lengths == 1 && std::stoull(length) > body_bytes)) {
    throw ApiError(413, "invalid_request_error", "the body is too large");
  }
}

void CheckOrigin(const httplib::Request& http, const ServerOptions& options,
                 httplib::Response& out) {
  // A web page of another host must not reach this server through a visitor's browser, neither
  // openly (Origin) nor by DNS rebinding (Host).
  const std::string host = http.get_header_value("Host");
  if (options.api_keys.empty() && IsLoopback(options.host) && !host.empty() &&
      !IsLoopback(HostName(host)) && HostName(host) != options.host) {
    throw ApiError(403, "permission_error",
                   "this server accepts only requests to its own address: see --host");
  }
  const std::string origin = http.get_header_value("Origin");
  if (!origin.empty()) {
    const bool own = origin == "http://" + host || origin == "https://" + host;
    const bool allowed = std::ranges::find(options.origins, origin) != options.origins.end() ||
                         std::ranges::find(options.origins, "*") != options.origins.end();
    if (!own && !allowed) {
      throw ApiError(403, "permission_error",
                     "this origin may not use the server: see --cors-origin");
    }
    if (!own) {
      out.set_header("Access-Control-Allow-Origin", origin);
      out.set_header("Access-Control-Allow-Headers", "*, Authorization");
      out.set_header("Vary", "Origin");
    }
  }
}

void CheckKey(const httplib::Request& http, const ServerOptions& options) {
  if (options.api_keys.empty()) return;
  std::string given = http.get_header_value("X-Api-Key");
  const std::string bearer = http.get_header_value("Authorization");
  if (strncasecmp(bearer.c_str(), "Bearer ", 7) == 0) given = bearer.substr(7);
  bool known = false;
  for (const std::string& key : options.api_keys) known |= SameKey(given, key);
  if (!known) {
    throw ApiError(401, "authentication_error", "the API key is missing or wrong", {},
                   "invalid_api_key");
  }
}

}  // namespace spa
