// What tests of a running server share.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "server/server.h"
#include "tests/server/test_engine.h"

namespace spa {

using Json = nlohmann::json;

inline ServerOptions TestOptions() {
  ServerOptions options;
  options.port = 0;
  options.model_id = "mini";
  options.version = "test";
  return options;
}

inline std::string ChatBody(const std::string& question, Json more = Json::object()) {
  more["messages"] = Json::array({{{"role", "user"}, {"content", question}}});
  if (!more.contains("max_tokens")) more["max_tokens"] = 32;
  return more.dump();
}

inline httplib::Client Connect(const Server& server) {
  httplib::Client client("127.0.0.1", server.port());
  client.set_read_timeout(600);  // a hang, not a slow machine
  return client;
}

inline httplib::Result Post(const Server& server, const std::string& path,
                            const std::string& body) {
  return Connect(server).Post(path, body, "application/json");
}

inline httplib::Result Ask(const Server& server, const std::string& body) {
  return Post(server, "/v1/chat/completions", body);
}

inline std::string Content(const httplib::Result& result) {
  if (!result || result->status != 200) return "(failed)";
  return Json::parse(result->body)["choices"][0]["message"]["content"];
}

inline double Metric(const Server& server, const std::string& name) {
  const auto result = Connect(server).Get("/metrics");
  const size_t at = result->body.find("\n" + name + " ");
  return at == std::string::npos ? -1.0 : std::stod(result->body.substr(at + name.size() + 2));
}

// Waits up to a minute for what the server counts after it has answered.
inline bool Becomes(const Server& server, const std::string& name, double value) {
  for (int i = 0; i < 2400; ++i) {
    if (Metric(server, name) == value) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  return false;
}

}  // namespace spa
