#include "server/api_error.h"

#include <nlohmann/json.hpp>

namespace spa {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson OrNull(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

}  // namespace

std::string ApiError::Body() const {
  const OrderedJson json = {
      {"error",
       {{"message", what()}, {"type", type_}, {"param", OrNull(param_)}, {"code", OrNull(code_)}}}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

void Refuse(const std::string& param, const std::string& message) {
  throw ApiError(400, "invalid_request_error", message, param);
}

}  // namespace spa
