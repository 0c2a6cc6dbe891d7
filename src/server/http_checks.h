// Who may ask, and how: checked from a request's head, before its body is read. All throw ApiError.
#pragma once

#include <httplib.h>

#include <string>

#include "server/server_options.h"

namespace spa {

// A head must say clearly how long its body is, and that must be allowed.
void CheckHead(const httplib::Request& http, size_t body_bytes);
// Web pages of other hosts may ask only if they are named; those get their headers.
void CheckOrigin(const httplib::Request& http, const ServerOptions& options,
                 httplib::Response& out);
void CheckKey(const httplib::Request& http, const ServerOptions& options);

bool IsLoopback(const std::string& host);

}  // namespace spa
