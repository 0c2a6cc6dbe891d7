#include "file/json_events.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace spa {
namespace {

constexpr size_t kMaxDepth = 64;  // the deepest part of a real header is 3

// Hands the events of nlohmann's parser on, leaving out what the handler wants to skip.
class Events : public nlohmann::json::json_sax_t {
 public:
  Events(JsonHandler& handler, const std::string& name) : handler_(handler), name_(name) {}

  bool null() override { return Pass(nullptr); }
  bool boolean(bool value) override { return Pass(value); }
  bool number_integer(number_integer_t value) override { return Pass(value); }
  bool number_unsigned(number_unsigned_t value) override { return Pass(value); }
  bool number_float(number_float_t value, const string_t&) override { return Pass(value); }
  bool string(string_t& value) override { return Pass(std::string_view(value)); }
  bool binary(binary_t&) override { return false; }  // JSON text has none

  bool start_object(size_t) override { return Open(true); }
  bool start_array(size_t) override { return Open(false); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& key) override {
    if (!skipping()) handler_.Key(key);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw Error("{}: not valid JSON: damaged or cut short near byte {}", name_, position);
  }

 private:
  bool skipping() const { return skip_from_ != 0; }

  bool Pass(const JsonScalar& value) {
    if (!skipping()) handler_.Scalar(value);
    return true;
  }

  bool Open(bool is_object) {
    if (++depth_ > kMaxDepth) throw Error("{}: JSON nested deeper than {}", name_, kMaxDepth);
    if (!skipping() && !handler_.Open(is_object)) skip_from_ = depth_;
    return true;
  }

  bool Close() {
    if (!skipping()) handler_.Close();
    if (skip_from_ == depth_) skip_from_ = 0;
    --depth_;
    return true;
  }

  JsonHandler& handler_;
  const std::string& name_;
  size_t depth_ = 0;
  size_t skip_from_ = 0;  // depth of the value being skipped, 0 if none
};

}  // namespace

void ParseJson(std::span<const std::byte> text, const std::string& name, JsonHandler& handler) {
  Events events(handler, name);
  const char* begin = reinterpret_cast<const char*>(text.data());
  nlohmann::json::sax_parse(begin, begin + text.size(), &events);
}

}  // namespace spa
