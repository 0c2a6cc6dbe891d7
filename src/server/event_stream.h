// An answer as server-sent events.
#pragma once

#include <httplib.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "server/api_answer.h"
#include "server/mailbox.h"

namespace spa {

class EventStream {
 public:
  EventStream(const ApiRequest& request, const std::string& model_id, const Tokenizer& tokenizer,
              std::shared_ptr<Mailbox> mailbox);

  // Waits for the first event. Throws ApiError if it is a failure: before anything was sent, that
  // is an ordinary HTTP error. False if the client has gone.
  bool Begin();
  // Sends the events since then; false ends the connection.
  bool Write(httplib::DataSink& sink);

 private:
  std::string TextOf(const Event& event);
  std::string EndOf(const Event& event);

  ApiAnswer answer_;
  std::shared_ptr<Mailbox> mailbox_;
  bool chat_, usage_;
  size_t left_;  // choices that have not ended
  std::vector<Event> early_, ends_;
  std::chrono::steady_clock::time_point last_write_;
};

}  // namespace spa
