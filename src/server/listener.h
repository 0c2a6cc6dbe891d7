// cpp-httplib's server with our own connections: a request must arrive within limits of time and
// size, however slowly its bytes trickle in, and a handler can ask whether its client is still
// connected.
#pragma once

#include <httplib.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

namespace spa {

struct ListenerLimits {
  size_t connections = 128;  // served at a time; more wait
  size_t body_bytes = 8 << 20;
  size_t head_bytes = 64 << 10;
  std::chrono::seconds read_time{30};   // for a whole request
  std::chrono::seconds idle_time{5};    // before a connection's next request, as it holds a thread
  std::chrono::seconds write_time{30};  // for a client that does not read
};

class Listener : public httplib::Server {
 public:
  explicit Listener(const ListenerLimits& limits);

  // Binds; port 0 takes a free one. Returns the port, or -1.
  int Bind(const std::string& host, int port);
  // Refuses new connections, and further requests on open ones.
  void Close();
  // Serves a connection that was made elsewhere, on this thread and to its end. Takes the socket.
  void Serve(int socket) { process_and_close_socket(socket); }

  // Called on the connection's thread before a request is read.
  std::function<void()> on_request;

  // For the handlers of the request on this thread: its client has disconnected;
  static bool ClientGone();
  // its head is accepted, so the body may follow;
  static void AllowBody();
  // it was read to its last byte, so that the next one can follow on the same connection. Otherwise
  // the connection is closed: leftover bytes must not be parsed as a request.
  static void KeepOpen();

 private:
  bool process_and_close_socket(socket_t socket) override;
  // process_request() has other parameters since cpp-httplib 0.18; a template compiles only the
  // call that fits.
  template <typename Self>
  static bool Process(Self& self, httplib::Stream& stream, bool& closed);

  ListenerLimits limits_;
  std::atomic<bool> closing_{false};
};

}  // namespace spa
