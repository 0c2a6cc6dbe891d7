#include "server/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace spa {
namespace {

using Clock = std::chrono::steady_clock;

int MillisecondsUntil(Clock::time_point time) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

bool Poll(int socket, short events, int milliseconds) {
  pollfd descriptor{.fd = socket, .events = events, .revents = 0};
  int ready = 0;
  do {
    ready = poll(&descriptor, 1, milliseconds);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// The peer closed its side, or the connection broke.
bool PeerGone(int socket) {
  char byte;
  const ssize_t got = recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void AddressAndPort(const sockaddr_storage& address, std::string& ip, int& port) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    port = ntohs(v4.sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    port = ntohs(v6.sin6_port);
  }
  ip = text;
}

// How often a waiting thread checks whether the server is closing.
constexpr int kSliceMs = 200;

// cpp-httplib asks a stream whether it can be written with is_writable() up to 0.19 and with
// wait_writable() after that, and knows duration() since 0.19. All of them are defined here and
// none is marked `override`, so that one class fits every release.
// NOLINTBEGIN(modernize-use-override)
class Connection : public httplib::Stream {
 public:
  Connection(int socket, const ListenerLimits& limits, const std::atomic<bool>& closing)
      : socket_(socket), limits_(limits), closing_(closing) {}

  // A new request begins: its time and size count from here.
  void BeginRequest() {
    begun_ = Clock::now();
    read_until_ = begun_ + limits_.read_time;
    bytes_left_ = limits_.head_bytes;
    keep_open_ = false;
  }
  void AllowBody() { bytes_left_ += limits_.body_bytes; }
  void KeepOpen() { keep_open_ = true; }
  bool keep_open() const { return keep_open_; }

  bool is_readable() const { return Poll(socket_, POLLIN, 0); }
  bool wait_readable() const { return begin_ != end_ || Wait(POLLIN, read_until_); }
  // The library gives up on a stream that is not writable; write() waits for slow readers.
  bool is_writable() const { return !PeerGone(socket_); }
  bool wait_writable() const { return !PeerGone(socket_); }

  ssize_t read(char* data, size_t size) {
    // The parser reads byte by byte; the socket is read in larger pieces.
    if (begin_ == end_) {
      if (bytes_left_ == 0 || !Wait(POLLIN, read_until_)) return -1;
      const ssize_t got = recv(socket_, buffer_, std::min(sizeof buffer_, bytes_left_), 0);
      if (got <= 0) return got;
      begin_ = 0;
      end_ = static_cast<size_t>(got);
      bytes_left_ -= end_;
    }
    const size_t count = std::min(size, end_ - begin_);
    std::copy_n(buffer_ + begin_, count, data);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* data, size_t size) {
    const auto until = Clock::now() + limits_.write_time;
    size_t sent = 0;
    while (sent < size) {
      if (!Wait(POLLOUT, until)) return -1;
      const ssize_t count = send(socket_, data + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return -1;
      sent += static_cast<size_t>(std::max<ssize_t>(count, 0));
    }
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
      AddressAndPort(address, ip, port);
    }
  }
  void get_local_ip_and_port(std::string& ip, int& port) const {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
      AddressAndPort(address, ip, port);
    }
  }
  socket_t socket() const { return socket_; }
  // In milliseconds, since the request began.
  time_t duration() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun_).count();
  }

  // Waits for the first byte of a request.
  bool WaitForRequest() { return begin_ != end_ || Wait(POLLIN, Clock::now() + limits_.idle_time); }
  bool Gone() const { return PeerGone(socket_); }

  // Shuts down our side and briefly drains the peer's: closing at once could discard an answer that
  // the peer has not read yet.
  void Close() {
    shutdown(socket_, SHUT_WR);
    const auto until = Clock::now() + std::chrono::milliseconds(500);
    while (Poll(socket_, POLLIN, MillisecondsUntil(until)) &&
           recv(socket_, buffer_, sizeof buffer_, 0) > 0 && Clock::now() < until) {
    }
    close(socket_);
  }

 private:
  // False when the time is up or the server closes.
  bool Wait(short events, Clock::time_point until) const {
    while (!Poll(socket_, events, std::min(kSliceMs, MillisecondsUntil(until)))) {
      if (closing_ || Clock::now() >= until) return false;
    }
    return true;
  }

  int socket_;
  const ListenerLimits& limits_;
  const std::atomic<bool>& closing_;
  Clock::time_point begun_, read_until_;
  size_t bytes_left_ = 0;
  bool keep_open_ = false;
  char buffer_[4096];
  size_t begin_ = 0, end_ = 0;
};
// NOLINTEND(modernize-use-override)

// The library runs a connection on one thread from its first byte to its last.
thread_local Connection* current = nullptr;

}  // namespace

Listener::Listener(const ListenerLimits& limits) : limits_(limits) {
  set_payload_max_length(limits.body_bytes);
  set_tcp_nodelay(true);
  // By default the library would share a port with another server.
  set_socket_options([](socket_t socket) {
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  });
  // Only for the Keep-Alive header; the loop below decides.
  set_keep_alive_max_count(1000);
  set_keep_alive_timeout(limits.idle_time.count());
  new_task_queue = [connections = limits.connections] {
    return new httplib::ThreadPool(connections);
  };
}

int Listener::Bind(const std::string& host, int port) {
  if (port == 0) {
    port = bind_to_any_port(host);
  } else if (!bind_to_port(host, port)) {
    port = -1;
  }
  // The library asks for a backlog of 5; a burst of clients would wait for seconds.
  if (port > 0) ::listen(svr_sock_, SOMAXCONN);
  return port;
}

void Listener::Close() {
  closing_ = true;
  stop();
}

bool Listener::ClientGone() { return current != nullptr && current->Gone(); }

void Listener::AllowBody() {
  if (current != nullptr) current->AllowBody();
}

void Listener::KeepOpen() {
  if (current != nullptr) current->KeepOpen();
}

template <typename Self>
bool Listener::Process(Self& self, httplib::Stream& stream, bool& closed) {
  const std::function<void(httplib::Request&)> setup;
  if constexpr (requires { self.process_request(stream, false, closed, setup); }) {
    return self.process_request(stream, self.closing_, closed, setup);  // up to 0.17
  } else {
    std::string remote_ip, local_ip;
    int remote_port = 0, local_port = 0;
    stream.get_remote_ip_and_port(remote_ip, remote_port);
    stream.get_local_ip_and_port(local_ip, local_port);
    return self.process_request(stream, remote_ip, remote_port, local_ip, local_port, self.closing_,
                                closed, setup);
  }
}

bool Listener::process_and_close_socket(socket_t socket) {
  Connection connection(socket, limits_, closing_);
  current = &connection;
  bool served = true, closed = false;
  do {
    if (!connection.WaitForRequest()) break;
    connection.BeginRequest();
    if (on_request) on_request();
    served = Process(*this, connection, closed);
  } while (served && !closed && connection.keep_open() && !closing_);
  current = nullptr;
  connection.Close();
  return served;
}

}  // namespace spa
