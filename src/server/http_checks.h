// Checks of a request's head, before its body is read. All throw ApiError.
#pragma once

#include <httplib.h>

#include <string>

#include "server/server_options.h"

namespace spa {

// The length of the body must be unambiguous and allowed.
void CheckHead(const httplib::Request& http, size_t body_bytes);
// Web pages of other origins are refused unless listed; those get CORS headers.
void CheckOrigin(const httplib::Request& http, const ServerOptions& options,
                 httplib::Response& out);
void CheckKey(const httplib::Request& http, const ServerOptions& options);

bool IsLoopback(const std::string& host);

}  // namespace spa
