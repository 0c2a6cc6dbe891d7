// A request that is refused: an HTTP status and OpenAI's error object.
#pragma once

#include <stdexcept>
#include <string>

namespace spa {

class ApiError : public std::runtime_error {
 public:
  ApiError(int http_status, std::string type, const std::string& message, std::string param = {},
           std::string code = {})
      : std::runtime_error(message),
        status(http_status),
        type_(std::move(type)),
        param_(std::move(param)),
        code_(std::move(code)) {}
  std::string Body() const;

  const int status;

 private:
  std::string type_, param_, code_;  // param, code: null in the body when empty
};

// 400, the client's mistake. `param` is the field at fault, if it is one.
[[noreturn]] void Refuse(const std::string& param, const std::string& message);

}  // namespace spa
