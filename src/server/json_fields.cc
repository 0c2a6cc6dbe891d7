#include "server/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json_depth.h"
#include "server/api_error.h"

namespace spa {
namespace {

constexpr size_t kMaxDepth = 32;

}  // namespace

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

nlohmann::json ParseObject(std::string_view body) {
  if (JsonDepth(body) > kMaxDepth) {
    Refuse("", fmt::format("the body is nested more than {} levels deep", kMaxDepth));
  }
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(body);
  } catch (const nlohmann::json::parse_error& error) {
    Refuse("", fmt::format("the body is not JSON (at byte {})", error.byte));
  } catch (const nlohmann::json::exception&) {
    Refuse("", "the body has a number that is too large");
  }
  if (!json.is_object()) Refuse("", "the body is not a JSON object");
  return json;
}

const nlohmann::json* JsonFields::Find(const std::string& name) {
  known_.insert(name);
  const auto found = body_.find(name);
  return found == body_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> JsonFields::Bool(const std::string& name) {
  const Json* value = Find(name);
  if (value == nullptr) return {};
  if (!value->is_boolean()) Refuse(name, fmt::format("'{}' must be true or false", name));
  return value->get<bool>();
}

std::optional<double> JsonFields::Number(const std::string& name, double least, double most) {
  const Json* value = Find(name);
  if (value == nullptr) return {};
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= least && number <= most)) {
    Refuse(name, fmt::format("'{}' must be a number from {} to {}", name, least, most));
  }
  return number;
}

std::optional<size_t> JsonFields::Count(const std::string& name, size_t least, size_t most) {
  const Json* value = Find(name);
  if (value == nullptr) return {};
  // Some clients write whole numbers as 64.0.
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= static_cast<double>(least) && number <= static_cast<double>(most)) ||
      number != std::floor(number)) {
    Refuse(name, fmt::format("'{}' must be a whole number from {} to {}", name, least, most));
  }
  return static_cast<size_t>(number);
}

std::optional<std::string> JsonFields::Text(const std::string& name) {
  const Json* value = Find(name);
  if (value == nullptr) return {};
  if (!value->is_string()) Refuse(name, fmt::format("'{}' must be a string", name));
  return value->get<std::string>();
}

void JsonFields::Only(const std::string& name, const std::vector<Json>& neutral) {
  const Json* value = Find(name);
  if (value != nullptr && std::ranges::find(neutral, *value) == neutral.end()) {
    Refuse(name, fmt::format("'{}' is not supported by this server", name));
  }
}

std::vector<std::string> JsonFields::Unknown() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : body_.items()) {
    if (!known_.contains(name)) names.push_back(name);
  }
  return names;
}

void JsonFields::RefuseUnknown() const {
  for (const std::string& name : Unknown()) {
    Refuse(name, fmt::format("'{}' is not a field of this request", name));
  }
}

}  // namespace spa
