#include "text/text_stream.h"

#include <utility>

namespace spa {

std::string TextStream::Append(const std::vector<TokenId>& ids) {
  std::string bytes = std::move(pending_);
  pending_.clear();
  for (const TokenId id : ids) {
    if (!tokenizer_->IsControl(id)) bytes += tokenizer_->TokenBytes(id);
  }
  std::string text;
  for (size_t pos = 0; pos < bytes.size();) {
    const Utf8Char c = DecodeUtf8(bytes, pos);
    if (c.truncated) {
      pending_ = bytes.substr(pos);
      break;
    }
    AppendUtf8(c.code_point, &text);
    pos += c.length;
  }
  return text;
}

std::string TextStream::Finish() {
  std::string text = ToValidUtf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace spa
