// Turns the outcome of a request's tasks into response bodies and stream events.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/api_request.h"
#include "server/mailbox.h"

namespace spa {

// The error for a generation that did not finish.
ApiError ErrorOf(const Event& end);

// Makes the bodies of one answer, which share id and time.
class ApiAnswer {
 public:
  ApiAnswer(const ApiRequest& request, std::string model_id, const Tokenizer& tokenizer);

  struct Choice {
    std::string text;
    Event end;
  };
  std::string Whole(const std::vector<Choice>& choices) const;
  bool echoes() const { return !prompts_.empty(); }
  // One chunk of a stream, as JSON.
  std::string First(size_t choice) const;  // the role (chat), or the echoed prompt
  std::string Text(size_t choice, const std::string& text) const;
  std::string Progress(const Event& progress) const;
  std::string Canvas(size_t choice, const Frame& frame) const;
  std::string Last(const Event& end) const;
  std::string Usage(const std::vector<Event>& ends) const;

 private:
  nlohmann::ordered_json Chunk(size_t choice, const std::string& text, bool role) const;

  nlohmann::ordered_json UsageOf(const std::vector<const Event*>& ends) const;
  // OpenAI's object for a prompt that was scored; null for others.
  nlohmann::ordered_json Logprobs(const Choice& choice) const;

  Route route_;
  size_t n_;
  bool include_usage_;
  std::string model_id_;
  const Tokenizer& tokenizer_;
  std::vector<std::vector<TokenId>> prompts_;  // one per choice, if they are echoed
  std::string id_;
  int64_t created_;
};

}  // namespace spa
