#include "server/answer_stream.h"

#include <algorithm>

namespace spa {

AnswerStream::AnswerStream(const Tokenizer& tokenizer, std::vector<std::string> stops,
                           size_t max_tokens)
    : text_(tokenizer), stops_(std::move(stops)), max_tokens_(max_tokens) {}

std::string AnswerStream::Advance(std::span<const TokenId> settled, bool ended, bool by_end_token) {
  std::string out;
  while (!finished_ && num_tokens_ < std::min(settled.size(), max_tokens_)) {
    pending_ += text_.Append({settled[num_tokens_]});
    ++num_tokens_;
    out += Release();
  }
  if (!finished_ && (num_tokens_ >= max_tokens_ || ended)) {
    pending_ += text_.Finish();
    out += Release();
    if (!finished_) out += Finish(by_end_token && num_tokens_ == settled.size());
  }
  return out;
}

std::string AnswerStream::Release() {
  size_t found = std::string::npos;
  for (const std::string& stop : stops_) found = std::min(found, pending_.find(stop));
  if (found != std::string::npos) {
    pending_.resize(found);
    return Finish(true);
  }
  // Hold back the longest end of pending_ that begins a stop string.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t length = std::min(stop.size() - 1, pending_.size()); length > keep; --length) {
      if (pending_.ends_with(std::string_view(stop).substr(0, length))) keep = length;
    }
  }
  std::string out = pending_.substr(0, pending_.size() - keep);
  pending_.erase(0, out.size());
  return out;
}

std::string AnswerStream::Finish(bool stopped) {
  finished_ = true;
  stopped_ = stopped;
  return std::exchange(pending_, {});
}

}  // namespace spa
