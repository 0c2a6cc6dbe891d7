#include "server/event_stream.h"

#include <utility>

#include "server/listener.h"
#include "server/request_log.h"

namespace spa {
namespace {

using Clock = std::chrono::steady_clock;

// A comment keeps a silent stream alive.
constexpr std::chrono::seconds kHeartbeat{15};

std::string SseEvent(const std::string& json) { return "data: " + json + "\n\n"; }

}  // namespace

EventStream::EventStream(const ApiRequest& request, const std::string& model_id,
                         const Tokenizer& tokenizer, std::shared_ptr<Mailbox> mailbox)
    : answer_(request, model_id, tokenizer),
      mailbox_(std::move(mailbox)),
      chat_(request.route == Route::kChat),
      usage_(request.include_usage),
      left_(request.tasks.size()),
      last_write_(Clock::now()) {}

bool EventStream::Begin() {
  while (early_.empty()) {
    early_ = mailbox_->Take(kLook);
    if (Listener::ClientGone()) return false;
  }
  for (const Event& event : early_) {
    if (event.kind == Event::Kind::kEnd && !event.finished()) {
      CurrentRequest().Add(event);
      throw ErrorOf(event);
    }
    if (event.kind == Event::Kind::kStarted) break;
  }
  return true;
}

bool EventStream::Write(httplib::DataSink& sink) {
  std::vector<Event> events = std::exchange(early_, {});
  if (events.empty()) events = mailbox_->Take(kLook);
  std::string text;
  for (const Event& event : events) {
    if (left_ > 0) text += TextOf(event);
  }
  if (text.empty() && Clock::now() - last_write_ > kHeartbeat) text = ":\n\n";
  if (text.empty()) return !Listener::ClientGone();
  last_write_ = Clock::now();
  if (!sink.write(text.data(), text.size())) return false;
  if (left_ == 0) sink.done();
  return true;
}

std::string EventStream::TextOf(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kStarted:
      return chat_ || answer_.echoes() ? SseEvent(answer_.First(event.choice)) : "";
    case Event::Kind::kText:
      return SseEvent(answer_.Text(event.choice, event.text));
    case Event::Kind::kFrame:
      return SseEvent(answer_.Canvas(event.choice, event.frame));
    case Event::Kind::kProgress:
      return SseEvent(answer_.Progress(event));
    case Event::Kind::kEnd:
      return EndOf(event);
  }
  return "";
}

std::string EventStream::EndOf(const Event& event) {
  CurrentRequest().Add(event);
  if (!event.finished()) {
    left_ = 0;
    return SseEvent(ErrorOf(event).Body());
  }
  --left_;
  ends_.push_back(event);
  std::string text = SseEvent(answer_.Last(event));
  if (left_ > 0) return text;
  if (usage_) text += SseEvent(answer_.Usage(ends_));
  return text + "data: [DONE]\n\n";
}

}  // namespace spa
