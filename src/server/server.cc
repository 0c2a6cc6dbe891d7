#include "server/server.h"

#include <arpa/inet.h>
#include <strings.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/embedded_page.h"

namespace spa {
namespace {

using Clock = std::chrono::steady_clock;
using OrderedJson = nlohmann::ordered_json;

// How long a handler waits before it looks whether its client is still there.
constexpr std::chrono::milliseconds kLook{50};
// A comment keeps a silent stream alive.
constexpr std::chrono::seconds kHeartbeat{15};
constexpr int kClientClosed = 499;  // for the log: nobody is there to read it

// What is known of the request on this thread, for its line in the log.
struct RequestLog {
  Clock::time_point start;
  std::string id;
  OrderedJson more;
};
thread_local RequestLog current;

// Takes the same time whatever the two strings hold.
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

bool IsPublic(const std::string& path) {
  return path == "/" || path == "/health" || path == "/v1/health" || path == "/favicon.ico";
}

void Send(httplib::Response& out, const ApiError& error) {
  out.status = error.status;
  out.set_content(error.Body(), "application/json");
  if (error.status == 401) out.set_header("WWW-Authenticate", "Bearer");
}

// The request was not read to its end: the connection closes behind this answer.
void SendAndClose(httplib::Response& out, const ApiError& error) {
  Send(out, error);
  out.set_header("Connection", "close");
}

std::string SseEvent(const std::string& json) { return "data: " + json + "\n\n"; }

void AddStats(const GenerationStats& stats, const char* ending) {
  current.more = {{"prompt_tokens", stats.prompt_tokens},
                  {"completion_tokens", stats.completion_tokens},
                  {"steps", stats.steps},
                  {"cache", stats.cache},
                  {"queue_ms", stats.queue_seconds * 1e3},
                  {"finish", ending}};
}

const char* EndingName(Ending ending) {
  switch (ending) {
    case Ending::kStop: return "stop";
    case Ending::kLength: return "length";
    case Ending::kInvalid: return "invalid";
    case Ending::kFailed: return "failed";
    case Ending::kTimeout: return "timeout";
    case Ending::kShutdown: return "shutdown";
  }
  return "";
}

bool Finished(const Event& end) {
  return end.ending == Ending::kStop || end.ending == Ending::kLength;
}

// What an address is asked with; empty if there is none.
std::string MethodOf(const std::string& path) {
  if (path == "/v1/chat/completions" || path == "/v1/completions") return "POST";
  for (const char* page : {"/", "/health", "/v1/health", "/metrics", "/props", "/v1/models"}) {
    if (path == page) return "GET";
  }
  return "";
}

}  // namespace

bool IsLoopback(const std::string& host) {
  in_addr address;
  return host == "localhost" || host == "::1" ||
         (inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

Server::Server(Engine& engine, const ServerOptions& options)
    : engine_(engine),
      options_(options),
      scheduler_(engine, options.scheduler, options.cache, metrics_),
      listener_(options.listener) {
  engine.tokenizer();  // throws if there is none
  AddRoutes();
  port_ = listener_.Bind(options_.host, options_.port);
  if (port_ < 0) {
    throw Error("cannot listen on {}:{}: choose another --port or --host", options_.host,
                options_.port);
  }
  thread_ = std::thread([this] {
    listener_.listen_after_bind();
    ended_ = true;
  });
  // The library forgets to stop when it is told to before it listens.
  while (!listener_.is_running() && !ended_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Server::~Server() {
  Shutdown(std::chrono::milliseconds(0));
  thread_.join();
}

void Server::Shutdown(std::chrono::milliseconds grace) {
  scheduler_.Drain(grace);
  // The listener cuts streams when it stops, so what has been said must be sent first.
  for (int i = 0; i < 100 && open_streams_ > 0; ++i) std::this_thread::sleep_for(kLook);
  listener_.Close();
}

void Server::AddRoutes() {
  listener_.on_request = [this] {
    current = {.start = Clock::now(), .id = fmt::format("{:08x}", ++num_requests_), .more = {}};
  };
  listener_.set_pre_routing_handler([this](const Request& http, Response& out) {
    out.set_header("x-request-id", current.id);
    // A part of an answer is of no use to anybody, and a thousand parts of the page are an attack.
    const_cast<Request&>(http).ranges.clear();
    try {
      CheckHead(http);
      CheckOrigin(http, out);
      if (http.method == "OPTIONS") {  // asked before the key is known
        out.status = 204;
        return httplib::Server::HandlerResponse::Handled;
      }
      CheckKey(http);
      Listener::AllowBody();
      return httplib::Server::HandlerResponse::Unhandled;
    } catch (const ApiError& error) {
      SendAndClose(out, error);
      return httplib::Server::HandlerResponse::Handled;
    }
  });
  listener_.set_expect_100_continue_handler([this](const Request& http, Response&) {
    try {
      CheckHead(http);
      return 100;
    } catch (const ApiError&) {
      return 417;
    }
  });
  listener_.set_logger([this](const Request& http, const Response& out) { Log(http, out); });
  listener_.set_error_handler([](const Request& http, Response& out) {
    if (!out.body.empty()) return;
    const std::string method = MethodOf(http.path);
    if (out.status == 404 && !method.empty()) {
      out.set_header("Allow", method);
      SendAndClose(out, ApiError(405, "invalid_request_error",
                                 http.path + " is asked with " + method + ", not " + http.method,
                                 {}, "method_not_allowed"));
    } else if (out.status == 404) {
      SendAndClose(out, ApiError(404, "invalid_request_error",
                         "there is nothing here: the API is at /v1/chat/completions, "
                         "/v1/completions and /v1/models",
                         {}, "unknown_url"));
    } else if (out.status == 413) {
      SendAndClose(out, ApiError(413, "invalid_request_error", "the body is too large"));
    } else {
      SendAndClose(out, ApiError(out.status, "invalid_request_error", "this is not a request we understand"));
    }
  });
  listener_.set_exception_handler([](const Request&, Response& out, std::exception_ptr) {
    Send(out, ApiError(500, "server_error", "the server made a mistake"));
  });
  const auto get = [this](const char* path, const httplib::Server::Handler& handler) {
    listener_.Get(path, [handler](const Request& http, Response& out) {
      handler(http, out);
      Listener::KeepOpen();
    });
  };
  get("/", [](const Request&, Response& out) {
    // Nothing but what the page carries itself may run, and nothing may frame it.
    out.set_header("Content-Security-Policy",
                   "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                   "img-src data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'");
    out.set_header("X-Content-Type-Options", "nosniff");
    // By a provider, or the library would compress the page anew for each browser: seconds.
    out.set_content_provider(EmbeddedPage().size(), "text/html; charset=utf-8",
                             [](size_t offset, size_t length, httplib::DataSink& sink) {
                               return sink.write(EmbeddedPage().data() + offset, length);
                             });
  });
  for (const char* path : {"/health", "/v1/health"}) {
    get(path, [this](const Request&, Response& out) {
      if (scheduler_.draining()) {
        return Send(out, ApiError(503, "unavailable_error", "the server is shutting down"));
      }
      out.set_content(R"({"status":"ok"})", "application/json");
    });
  }
  get("/metrics", [this](const Request&, Response& out) {
    out.set_content(metrics_.Text(), "text/plain; version=0.0.4");
  });
  get("/props", [this](const Request&, Response& out) {
    out.set_content(PropsBody(), "application/json");
  });
  get("/v1/models", [this](const Request&, Response& out) {
    out.set_content(ModelsBody(true), "application/json");
  });
  get(R"(/v1/models/(.+))", [this](const Request& http, Response& out) {
    if (http.matches[1] != options_.model_id) {
      return Send(out, ApiError(404, "invalid_request_error", "there is no such model", "model",
                                "model_not_found"));
    }
    out.set_content(ModelsBody(false), "application/json");
  });
  const auto post = [this](const char* path, Route route) {
    listener_.Post(path, [this, route](const Request& http, Response& out,
                                       const httplib::ContentReader& read) {
      std::string body;
      const bool whole = read([&](const char* data, size_t size) {
        body.append(data, size);
        return body.size() <= options_.listener.body_bytes;
      });
      if (!whole) {
        const bool large = body.size() > options_.listener.body_bytes || out.status == 413;
        return SendAndClose(
            out, large ? ApiError(413, "invalid_request_error", "the body is too large")
                       : ApiError(400, "invalid_request_error", "the body is not complete"));
      }
      Listener::KeepOpen();
      try {
        Complete(route, http, body, out);
      } catch (const ApiError& error) {
        Send(out, error);
      }
    });
  };
  post("/v1/chat/completions", Route::kChat);
  post("/v1/completions", Route::kCompletion);
}

void Server::CheckHead(const Request& http) const {
  const std::string encoding = http.get_header_value("Transfer-Encoding");
  const size_t lengths = http.get_header_value_count("Content-Length");
  const std::string length = http.get_header_value("Content-Length");
  if (!encoding.empty() && encoding != "chunked") {
    throw ApiError(501, "not_supported_error", "bodies are taken plain or in chunks");
  }
  if (http.get_header_value("Content-Type").starts_with("multipart/")) {
    throw ApiError(415, "invalid_request_error", "the body must be JSON");
  }
  const bool digits = std::ranges::all_of(length, [](char c) { return c >= '0' && c <= '9'; });
  if (lengths > 1 || !digits || (lengths == 1 && (length.empty() || !encoding.empty()))) {
    throw ApiError(400, "invalid_request_error", "the length of the body is not clear");
  }
  const bool wants_body = http.method == "POST" || http.method == "PUT" || http.method == "PATCH";
  if (wants_body && lengths == 0 && encoding.empty()) {
    throw ApiError(411, "invalid_request_error", "a body needs a Content-Length");
  }
  if (!wants_body && (!encoding.empty() || (lengths == 1 && length != "0"))) {
    throw ApiError(400, "invalid_request_error", "this request has no body");
  }
  if (length.size() > 18 || (lengths == 1 && std::stoull(length) > options_.listener.body_bytes)) {
    throw ApiError(413, "invalid_request_error", "the body is too large");
  }
}

void Server::CheckOrigin(const Request& http, Response& out) const {
  // A page of another host must not use a visitor's browser to reach this server, whether it says
  // so or pretends that its name is ours.
  const std::string host = http.get_header_value("Host");
  if (options_.api_keys.empty() && IsLoopback(options_.host) && !host.empty() &&
      !IsLoopback(HostName(host)) && HostName(host) != options_.host) {
    throw ApiError(403, "permission_error", "this server is for its own machine: see --host");
  }
  const std::string origin = http.get_header_value("Origin");
  if (!origin.empty()) {
    const bool own = origin == "http://" + host || origin == "https://" + host;
    const bool allowed = std::ranges::find(options_.origins, origin) != options_.origins.end() ||
                         std::ranges::find(options_.origins, "*") != options_.origins.end();
    if (!own && !allowed) {
      throw ApiError(403, "permission_error", "this origin may not use the server: see --cors-origin");
    }
    if (!own) {
      out.set_header("Access-Control-Allow-Origin", origin);
      out.set_header("Access-Control-Allow-Headers", "*, Authorization");
      out.set_header("Vary", "Origin");
    }
  }
}

void Server::CheckKey(const Request& http) const {
  if (options_.api_keys.empty() || IsPublic(http.path)) return;
  std::string given = http.get_header_value("X-Api-Key");
  const std::string bearer = http.get_header_value("Authorization");
  if (strncasecmp(bearer.c_str(), "Bearer ", 7) == 0) given = bearer.substr(7);
  bool known = false;
  for (const std::string& key : options_.api_keys) known |= SameKey(given, key);
  if (!known) {
    throw ApiError(401, "authentication_error", "the API key is missing or wrong", {},
                   "invalid_api_key");
  }
}

void Server::Complete(Route route, const Request& http, const std::string& body, Response& out) {
  ApiRequest request = ParseApiRequest(route, body, engine_, options_.model_id,
                                       options_.cache, options_.limits);
  if (options_.request_time.count() > 0) {
    for (GenerationTask& task : request.tasks) task.deadline = current.start + options_.request_time;
  }
  auto mailbox = std::make_shared<Mailbox>();
  switch (scheduler_.Submit(request.tasks, mailbox)) {
    case Scheduler::Admission::kAccepted:
      break;
    case Scheduler::Admission::kDraining:
      throw ApiError(503, "unavailable_error", "the server is shutting down");
    case Scheduler::Admission::kQueueFull: {
      if (request.tasks.size() > options_.scheduler.queue) {
        throw ApiError(400, "invalid_request_error",
                       fmt::format("one request may ask for {} answers at most on this server",
                                   options_.scheduler.queue));
      }
      const double wait = metrics_.TypicalSeconds() * static_cast<double>(metrics_.queued()) /
                          static_cast<double>(options_.scheduler.parallel);
      out.set_header("Retry-After",
                     std::to_string(std::clamp(static_cast<int>(wait), 1, 60)));
      throw ApiError(429, "rate_limit_error", "too many requests are waiting: try again later", {},
                     "queue_full");
    }
  }
  if (request.stream) {
    Stream(request, mailbox, http, out);
  } else {
    Collect(request, mailbox, out);
  }
}

void Server::Collect(const ApiRequest& request, const std::shared_ptr<Mailbox>& mailbox,
                     Response& out) {
  const ApiAnswer answer(request, options_.model_id, engine_.tokenizer());
  std::vector<ApiAnswer::Choice> choices(request.tasks.size());
  size_t left = choices.size();
  while (left > 0) {
    for (Event& event : mailbox->Take(kLook)) {
      if (event.kind == Event::Kind::kText) choices[event.choice].text += event.text;
      if (event.kind != Event::Kind::kEnd) continue;
      AddStats(event.stats, EndingName(event.ending));
      if (!Finished(event)) {
        mailbox->Cancel();  // the other choices have nobody to go to
        throw ErrorOf(event);
      }
      choices[event.choice].end = std::move(event);
      --left;
    }
    if (left > 0 && Listener::ClientGone()) {
      mailbox->Cancel();
      out.status = kClientClosed;
      return;
    }
  }
  out.set_content(answer.Whole(choices), "application/json");
}

void Server::Stream(const ApiRequest& request, const std::shared_ptr<Mailbox>& mailbox,
                    const Request& http, Response& out) {
  struct State {
    State(const ApiRequest& request, const std::string& model, const Tokenizer& tokenizer)
        : answer(request, model, tokenizer), chat(request.route == Route::kChat),
          usage(request.include_usage), left(request.tasks.size()) {}
    ApiAnswer answer;
    bool chat, usage;
    size_t left;
    std::vector<Event> early, ends;
    Clock::time_point last_write = Clock::now();
  };
  auto state = std::make_shared<State>(request, options_.model_id, engine_.tokenizer());
  // What goes wrong before the first event is an ordinary HTTP error.
  while (state->early.empty()) {
    state->early = mailbox->Take(kLook);
    if (Listener::ClientGone()) {
      mailbox->Cancel();
      out.status = kClientClosed;
      return;
    }
  }
  for (const Event& event : state->early) {
    if (event.kind == Event::Kind::kEnd && !Finished(event)) {
      mailbox->Cancel();
      AddStats(event.stats, EndingName(event.ending));
      throw ErrorOf(event);
    }
    if (event.kind == Event::Kind::kStarted) break;
  }

  const auto write_event = [state](const Event& event) -> std::string {
    switch (event.kind) {
      case Event::Kind::kStarted:
        return state->chat ? SseEvent(state->answer.First(event.choice)) : "";
      case Event::Kind::kText:
        return SseEvent(state->answer.Text(event.choice, event.text));
      case Event::Kind::kFrame:
        return SseEvent(state->answer.Canvas(event.choice, event.frame));
      case Event::Kind::kEnd:
        AddStats(event.stats, EndingName(event.ending));
        if (!Finished(event)) {
          state->left = 0;
          return SseEvent(ErrorOf(event).Body());
        }
        --state->left;
        state->ends.push_back(event);
        if (state->left > 0) return SseEvent(state->answer.Last(event));
        return SseEvent(state->answer.Last(event)) +
               (state->usage ? SseEvent(state->answer.Usage(state->ends)) : "") +
               "data: [DONE]\n\n";
    }
    return "";
  };
  const auto provide = [state, mailbox, write_event](size_t, httplib::DataSink& sink) {
    std::vector<Event> events = std::exchange(state->early, {});
    if (events.empty()) events = mailbox->Take(kLook);
    std::string text;
    for (const Event& event : events) {
      if (state->left > 0) text += write_event(event);
    }
    if (text.empty() && Clock::now() - state->last_write > kHeartbeat) text = ":\n\n";
    if (text.empty()) return !Listener::ClientGone();
    state->last_write = Clock::now();
    if (!sink.write(text.data(), text.size())) return false;
    if (state->left == 0) sink.done();
    return true;
  };
  out.set_header("Cache-Control", "no-cache");
  ++open_streams_;
  const auto finish = [this, mailbox](bool) {
    mailbox->Cancel();  // whether it is finished or its client is gone
    --open_streams_;
  };
  if (http.version == "HTTP/1.0") {  // knows no chunks: the end of the connection is the end
    out.set_header("Connection", "close");
    out.set_content_provider("text/event-stream", provide, finish);
  } else {
    out.set_chunked_content_provider("text/event-stream", provide, finish);
  }
}

void Server::Log(const Request& http, const Response& out) {
  const double seconds = std::chrono::duration<double>(Clock::now() - current.start).count();
  // Paths that do not exist must not fill the metrics.
  static const std::vector<std::string> kRoutes = {"/",          "/health",    "/v1/health",
                                                   "/metrics",   "/props",     "/v1/models",
                                                   "/v1/completions", "/v1/chat/completions"};
  const bool known = std::ranges::find(kRoutes, http.path) != kRoutes.end();
  metrics_.CountRequest(known ? http.path : "other", out.status, seconds);
  if (!options_.log) return;
  OrderedJson line = {{"time", std::time(nullptr)},
                      {"id", current.id},
                      {"method", known ? http.method : "other"},
                      {"path", known ? http.path : "other"},
                      {"status", out.status},
                      {"ms", std::round(seconds * 1e4) / 10}};
  if (current.more.is_object()) line.update(current.more);
  options_.log(line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

std::string Server::PropsBody() const {
  OrderedJson caches = OrderedJson::array();
  for (const CacheInfo& info : Caches()) {
    caches.push_back({{"name", info.name}, {"summary", info.summary}});
  }
  const DecodeOptions standard = engine_.DefaultDecodeOptions();
  const ModelConfig& config = engine_.config();
  const size_t most = options_.limits.max_tokens == 0 ? config.context_length
                                                      : options_.limits.max_tokens;
  const OrderedJson body = {
      {"version", options_.version},
      {"model",
       {{"id", options_.model_id},
        {"family", config.family == Family::kDream ? "dream" : "llada"},
        {"layers", config.num_layers},
        {"context", config.context_length}}},
      {"defaults",
       {{"max_tokens", std::min<size_t>(standard.gen_length, most)},
        {"block_length", standard.block_length},
        {"remasking", DefaultOrderName(engine_)},
        {"temperature", standard.temperature},
        {"cache", options_.cache.name}}},
      {"caches", caches},
      {"remasking", OrderNames()},
      {"limits",
       {{"max_tokens", most},
        {"parallel", options_.scheduler.parallel},
        {"queue", options_.scheduler.queue}}},
      {"examples", options_.examples}};
  return body.dump();
}

std::string Server::ModelsBody(bool list) const {
  const OrderedJson model = {{"id", options_.model_id},
                             {"object", "model"},
                             {"created", 0},
                             {"owned_by", "spa.cpp"}};
  return list ? OrderedJson{{"object", "list"}, {"data", OrderedJson::array({model})}}.dump()
              : model.dump();
}

}  // namespace spa
