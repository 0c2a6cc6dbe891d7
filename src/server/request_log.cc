#include "server/request_log.h"

#include <cmath>
#include <ctime>

namespace spa {
namespace {

using OrderedJson = nlohmann::ordered_json;

const char* EndingName(Ending ending) {
  switch (ending) {
    case Ending::kStop:
      return "stop";
    case Ending::kLength:
      return "length";
    case Ending::kInvalid:
      return "invalid";
    case Ending::kTooLarge:
      return "too_large";
    case Ending::kFailed:
      return "failed";
    case Ending::kTimeout:
      return "timeout";
    case Ending::kShutdown:
      return "shutdown";
  }
  return "";
}

}  // namespace

double RequestLog::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void RequestLog::Explain(const std::string& why) {
  constexpr size_t kMostBytes = 300;  // field names are chosen by the client
  if (error.empty()) error = why.substr(0, kMostBytes);
}

void RequestLog::Add(const Event& end) {
  if (!end.finished()) Explain(end.reason.empty() ? end.text : end.reason);
  more = {{"prompt_tokens", end.stats.prompt_tokens},
          {"completion_tokens", end.stats.generated_tokens},
          {"steps", end.stats.steps},
          {"cache", end.stats.cache},
          {"queue_ms", end.stats.queue_seconds * 1e3},
          {"finish", EndingName(end.ending)}};
}

std::string RequestLog::Line(const std::string& method, const std::string& path, int status) const {
  OrderedJson line = {{"time", std::time(nullptr)}, {"id", id},
                      {"method", method},           {"path", path},
                      {"status", status},           {"ms", std::round(seconds() * 1e4) / 10}};
  if (!error.empty()) line["error"] = error;
  if (more.is_object()) line.update(more);
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

RequestLog& CurrentRequest() {
  thread_local RequestLog current;
  return current;
}

}  // namespace spa
