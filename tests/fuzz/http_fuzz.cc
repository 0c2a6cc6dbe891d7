// A running server is sent any bytes, as a whole request or as the body of a proper one, and must
// stay up: a health check afterwards is answered.
#include <arpa/inet.h>
#include <poll.h>
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
    options.listener.read_time = std::chrono::seconds(1);
    return options;
  }());
  return server;
}

// What the server answers, until it closes or is silent for a while.
std::string Exchange(const std::string& bytes) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(RunningServer().port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    pollfd descriptor{.fd = socket, .events = POLLIN, .revents = 0};
    char buffer[4096];
    while (poll(&descriptor, 1, 100) > 0) {
      const ssize_t count = recv(socket, buffer, sizeof buffer, 0);
      if (count <= 0) break;
      answer.append(buffer, static_cast<size_t>(count));
      if (answer.find("\r\n\r\n") != std::string::npos) break;
    }
  }
  close(socket);
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
    for (int i = 0; Exchange(health).find("200 OK") == std::string::npos; ++i) {
      if (i == 50) std::abort();  // 5 s without an answer
    }
  }
  return 0;
}
