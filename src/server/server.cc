#include "server/server.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/embedded.h"
#include "engine/option_reference.h"
#include "server/api_answer.h"
#include "server/event_stream.h"
#include "server/http_checks.h"
#include "server/request_log.h"
#include "server/server_info.h"
#include "server/token_api.h"

namespace spa {
namespace {

constexpr bool kOpen = false, kNeedsKey = true;  // HttpRoute::needs_key
constexpr int kClientClosed = 499;               // for the log only: the client has gone

void SendPage(httplib::Response& out) {
  // Only the page's own script may run, and nothing may frame the page.
  out.set_header("Content-Security-Policy",
                 "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                 "img-src data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'");
  out.set_header("X-Content-Type-Options", "nosniff");
  // Sent by a provider, or the library would compress the page for each browser: seconds.
  out.set_content_provider(EmbeddedPage().size(), "text/html; charset=utf-8",
                           [](size_t offset, size_t length, httplib::DataSink& sink) {
                             return sink.write(EmbeddedPage().data() + offset, length);
                           });
}

// Field names from a request, made safe for a response header.
std::string HeaderList(const std::vector<std::string>& names) {
  constexpr size_t kMostBytes = 1000;
  std::string list;
  for (const std::string& name : names) {
    if (!list.empty()) list += ", ";
    for (const char c : name.substr(0, 64)) list += c > ' ' && c < 127 && c != ',' ? c : '?';
    if (list.size() > kMostBytes) return list + ", ...";
  }
  return list;
}

void SendJson(httplib::Response& out, const std::string& body) {
  out.set_content(body, "application/json");
}

}  // namespace

Server::Server(Engine& engine, const ServerOptions& options, SharedCache cache)
    : engine_(engine),
      options_(options),
      scheduler_(engine, options.scheduler, std::move(cache), metrics_),
      routes_(Routes()),
      listener_(options.listener) {
  engine.tokenizer();  // throws if there is none
  SetHandlers();
  routes_.Register(listener_, options_.listener.body_bytes);
  port_ = listener_.Bind(options_.host, options_.port);
  if (port_ < 0) {
    throw Error("cannot listen on {}:{}: choose another --port or --host", options_.host,
                options_.port);
  }
  thread_ = std::thread([this] {
    listener_.listen_after_bind();
    ended_ = true;
  });
  // cpp-httplib ignores a stop that comes before it listens.
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
  // The listener cuts streams when it stops, so pending events must be sent first.
  for (int i = 0; i < 100 && open_streams_ > 0; ++i) std::this_thread::sleep_for(kLook);
  listener_.Close();
}

std::vector<HttpRoute> Server::Routes() {
  using Body = const std::string&;
  const auto health = [this](const Request&, Body, Response& out) {
    if (scheduler_.draining()) {
      throw ApiError(503, "unavailable_error", "the server is shutting down");
    }
    SendJson(out, R"({"status":"ok"})");
  };
  return {
      {"GET", "/", kOpen, [](const Request&, Body, Response& out) { SendPage(out); }},
      {"GET", "/favicon.ico", kOpen, [](const Request&, Body, Response& out) { out.status = 204; }},
      {"GET", "/health", kOpen, health},
      {"GET", "/v1/health", kOpen, health},
      {"GET", "/metrics", kNeedsKey,
       [this](const Request&, Body, Response& out) {
         out.set_content(metrics_.Text(), "text/plain; version=0.0.4");
       }},
      {"GET", "/props", kNeedsKey,
       [this](const Request&, Body, Response& out) {
         SendJson(out, PropsBody(engine_, options_));
       }},
      {"GET", "/v1/options", kNeedsKey,
       [](const Request&, Body, Response& out) { SendJson(out, OptionsJson().dump()); }},
      {"GET", "/v1/models", kNeedsKey,
       [this](const Request&, Body, Response& out) {
         SendJson(out, ModelListBody(engine_, options_));
       }},
      {"GET", "/v1/models/*", kNeedsKey,
       [this](const Request& http, Body, Response& out) {
         if (http.matches[1] != options_.model_id) {
           throw ApiError(404, "invalid_request_error", "there is no such model", "model",
                          "model_not_found");
         }
         SendJson(out, ModelBody(engine_, options_));
       }},
      {"POST", "/v1/completions", kNeedsKey,
       [this](const Request& http, Body body, Response& out) {
         Complete(Route::kCompletion, http, body, out);
       }},
      {"POST", "/v1/chat/completions", kNeedsKey,
       [this](const Request& http, Body body, Response& out) {
         Complete(Route::kChat, http, body, out);
       }},
      {"GET", "/tokenizer_info", kNeedsKey,
       [this](const Request&, Body, Response& out) { SendJson(out, TokenizerInfoBody(engine_)); }},
      {"POST", "/tokenize", kNeedsKey,
       [this](const Request&, Body body, Response& out) {
         SendJson(out, TokenizeBody(engine_, options_.model_id, body));
       }},
      {"POST", "/detokenize", kNeedsKey,
       [this](const Request&, Body body, Response& out) {
         SendJson(out, DetokenizeBody(engine_, options_.model_id, body));
       }},
  };
}

void Server::SetHandlers() {
  listener_.on_request = [this] {
    CurrentRequest() = {.start = std::chrono::steady_clock::now(),
                        .id = fmt::format("{:08x}", ++num_requests_)};
  };
  listener_.set_pre_routing_handler([this](const Request& http, Response& out) {
    out.set_header("x-request-id", CurrentRequest().id);
    // Range requests: part of an answer is useless, and a thousand ranges of the page are an
    // attack.
    const_cast<Request&>(http).ranges.clear();
    try {
      CheckHead(http, options_.listener.body_bytes);
      CheckOrigin(http, options_, out);
      if (http.method == "OPTIONS") {  // preflight, sent without the key
        out.status = 204;
        return httplib::Server::HandlerResponse::Handled;
      }
      const HttpRoute* route = routes_.Find(http.path);
      if (route == nullptr || route->needs_key) CheckKey(http, options_);
      Listener::AllowBody();
      return httplib::Server::HandlerResponse::Unhandled;
    } catch (const ApiError& error) {
      SendErrorAndClose(out, error);
      return httplib::Server::HandlerResponse::Handled;
    }
  });
  listener_.set_expect_100_continue_handler([this](const Request& http, Response&) {
    try {
      CheckHead(http, options_.listener.body_bytes);
      return 100;
    } catch (const ApiError&) {
      return 417;
    }
  });
  listener_.set_logger([this](const Request& http, const Response& out) { Log(http, out); });
  listener_.set_error_handler([this](const Request& http, Response& out) {
    if (out.body.empty()) routes_.SendUnrouted(http, out);
  });
  listener_.set_exception_handler([](const Request&, Response& out, const std::exception_ptr&) {
    SendError(out, ApiError(500, "server_error", "internal error"));
  });
}

void Server::Complete(Route route, const Request& http, const std::string& body, Response& out) {
  ApiRequest request =
      ParseApiRequest(route, body, engine_, options_.model_id, options_.cache, options_.limits);
  if (options_.request_time.count() > 0) {
    for (GenerationTask& task : request.tasks) {
      task.deadline = CurrentRequest().start + options_.request_time;
    }
  }
  // Tell the client what was ignored or clamped.
  if (!request.ignored.empty()) out.set_header("x-spa-ignored", HeaderList(request.ignored));
  if (request.clamped) {
    out.set_header("x-spa-max-tokens", std::to_string(request.tasks[0].max_tokens));
  }
  auto mailbox = std::make_shared<Mailbox>();
  Submit(request, mailbox, out);
  try {
    if (request.stream) {
      Stream(request, mailbox, http, out);
    } else {
      Collect(request, *mailbox, out);
    }
  } catch (...) {
    mailbox->Cancel();  // the other choices have no client
    throw;
  }
}

void Server::Submit(const ApiRequest& request, const std::shared_ptr<Mailbox>& mailbox,
                    Response& out) {
  switch (scheduler_.Submit(request.tasks, mailbox)) {
    case Scheduler::Admission::kAccepted:
      return;
    case Scheduler::Admission::kDraining:
      throw ApiError(503, "unavailable_error", "the server is shutting down");
    case Scheduler::Admission::kQueueFull:
      break;
  }
  if (request.tasks.size() > options_.scheduler.queue) {
    Refuse("", fmt::format("one request may ask for {} answers at most on this server",
                           options_.scheduler.queue));
  }
  const double wait = metrics_.TypicalSeconds() * static_cast<double>(metrics_.queued()) /
                      static_cast<double>(options_.scheduler.parallel);
  out.set_header("Retry-After", std::to_string(std::clamp(static_cast<int>(wait), 1, 60)));
  throw ApiError(429, "rate_limit_error", "too many requests are waiting: try again later", {},
                 "queue_full");
}

void Server::Collect(const ApiRequest& request, Mailbox& mailbox, Response& out) {
  const ApiAnswer answer(request, options_.model_id, engine_.tokenizer());
  std::vector<ApiAnswer::Choice> choices(request.tasks.size());
  size_t left = choices.size();
  while (left > 0) {
    for (Event& event : mailbox.Take(kLook)) {
      if (event.kind == Event::Kind::kText) choices[event.choice].text += event.text;
      if (event.kind != Event::Kind::kEnd) continue;
      CurrentRequest().Add(event);
      if (!event.finished()) throw ErrorOf(event);
      choices[event.choice].end = std::move(event);
      --left;
    }
    if (left > 0 && Listener::ClientGone()) {
      mailbox.Cancel();
      out.status = kClientClosed;
      return;
    }
  }
  SendJson(out, answer.Whole(choices));
}

void Server::Stream(const ApiRequest& request, const std::shared_ptr<Mailbox>& mailbox,
                    const Request& http, Response& out) {
  auto stream =
      std::make_shared<EventStream>(request, options_.model_id, engine_.tokenizer(), mailbox);
  if (!stream->Begin()) {
    mailbox->Cancel();
    out.status = kClientClosed;
    return;
  }
  out.set_header("Cache-Control", "no-cache");
  ++open_streams_;
  const auto provide = [stream](size_t, httplib::DataSink& sink) { return stream->Write(sink); };
  const auto finish = [this, mailbox](bool) {
    mailbox->Cancel();  // finished, or the client has gone
    --open_streams_;
  };
  if (http.version == "HTTP/1.0") {  // has no chunks: closing the connection ends the body
    out.set_header("Connection", "close");
    out.set_content_provider("text/event-stream", provide, finish);
  } else {
    out.set_chunked_content_provider("text/event-stream", provide, finish);
  }
}

void Server::Log(const Request& http, const Response& out) {
  // Paths that do not exist must not fill the metrics.
  const HttpRoute* route = routes_.Find(http.path);
  const std::string path = route != nullptr ? route->path : "other";
  metrics_.CountRequest(path, out.status, CurrentRequest().seconds());
  if (!options_.log) return;
  options_.log(CurrentRequest().Line(route != nullptr ? http.method : "other", path, out.status));
}

}  // namespace spa
