// Lines typed by a person, with editing and history on a terminal, or read from a file or pipe.
#pragma once

#include <optional>
#include <string>

namespace spa::cli {

class LineReader {
 public:
  // History is kept across runs in the user's state directory, readable by the user alone.
  LineReader();
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Without its newline; nothing at the end of the input. A line that ends with a backslash
  // continues on the next one.
  std::optional<std::string> Read(const std::string& prompt);
  bool interactive() const { return interactive_; }

 private:
  std::optional<std::string> ReadOne(const std::string& prompt);

  bool interactive_;
  std::string history_file_;  // empty: none
};

}  // namespace spa::cli
