// JSON read as events, without building a tree: the memory a document takes is what its handler
// keeps, and nesting is bounded. Shared by the readers of this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace spa {

using JsonScalar = std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string_view>;

// What a document contains, in order. Handlers throw Error when they meet what they do not expect.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;

  // An object or array opens. Returning false skips everything inside it.
  virtual bool Open(bool is_object) = 0;
  virtual void Close() = 0;
  virtual void Key(std::string_view key) = 0;
  virtual void Scalar(const JsonScalar& value) = 0;
};

// Throws Error if `text` is not one JSON value or nests too deep; `name` appears in errors.
void ParseJson(std::span<const std::byte> text, const std::string& name, JsonHandler& handler);

}  // namespace spa
