// Reads the fields of a request's body one by one. All functions throw ApiError.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace spa {

// Refuses what is not an object, or nested too deep to be handled safely.
nlohmann::json ParseObject(std::string_view body);

// An answer's text; bytes that are not UTF-8 are replaced.
std::string Dump(const nlohmann::ordered_json& json);

class JsonFields {
 public:
  using Json = nlohmann::json;

  // `body` must outlive the reader.
  explicit JsonFields(const Json& body) : body_(body) {}

  // Nothing if the field is missing or null.
  const Json* Find(const std::string& name);
  std::optional<bool> Bool(const std::string& name);
  std::optional<double> Number(const std::string& name, double least, double most);
  std::optional<size_t> Count(const std::string& name, size_t least, size_t most);
  std::optional<std::string> Text(const std::string& name);
  // A field of the API that is accepted only at its neutral value.
  void Only(const std::string& name, const std::vector<Json>& neutral);
  void Ignore(const std::string& name) { known_.insert(name); }

  // Fields that were never read, so that a typo cannot silently change a result.
  std::vector<std::string> Unknown() const;
  void RefuseUnknown() const;

 private:
  const Json& body_;
  std::set<std::string> known_;
};

}  // namespace spa
