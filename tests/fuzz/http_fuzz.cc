// A running server is sent any bytes, as a whole request or as the body of a proper one, and must
// stay up: a health check afterwards is answered.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "server/server.h"

namespace {

spa::Server& RunningServer() {
  static spa::Engine engine(
      {.model = {}, .threads = 1, .kv_type = spa::KvType::kF32, .progress = {}});
  static spa::Server server(engine, [] {
    spa::ServerOptions options;
    options.port = 0;
    options.model_id = "mini";
    options.limits.max_tokens = 8;
    options.limits.max_prompt_tokens = 64;
    options.listener.connections = 8;
    options.listener.write_time = std::chrono::seconds(1);
    return options;
  }());
  return server;
}

// What the server answers to these bytes, after which the client sends no more. Served on this
// thread: nothing is waited for.
std::string Exchange(const std::string& bytes) {
  int sockets[2];  // the client's, the server's
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) std::abort();
  // Room for any request and any answer, the page's half a megabyte too.
  const int room = 2 << 20;
  for (const int socket : sockets) {
    if (setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0) {
      setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    }
  }
  if (send(sockets[0], bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    std::abort();
  }
  shutdown(sockets[0], SHUT_WR);
  RunningServer().Serve(sockets[1]);
  std::string answer;
  static char buffer[64 << 10];
  for (ssize_t count; (count = recv(sockets[0], buffer, sizeof buffer, 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(count));
  }
  close(sockets[0]);
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto post = [&](const char* path) {
    return std::string("POST ") + path +
           " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(rest.size()) +
           "\r\n\r\n" + rest;
  };
  switch (data[0] % 3) {
    case 0:
      Exchange(rest);
      break;
    case 1:
      Exchange(post("/v1/chat/completions"));
      break;
    default:
      Exchange(post("/v1/completions"));
      break;
  }
  static unsigned count = 0;
  if (++count % 64 == 0) {
    const std::string health =
        "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    if (Exchange(health).find("200 OK") == std::string::npos) std::abort();
  }
  return 0;
}
