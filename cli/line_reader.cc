#include "cli/line_reader.h"

#include <editline/readline.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <system_error>

namespace spa::cli {
namespace {

constexpr int kHistoryLines = 1000;

std::string HistoryFile() {
  std::filesystem::path folder;
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/') {
    folder = state;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return {};
  }
  folder /= "spa";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? std::string() : (folder / "chat_history").string();
}

}  // namespace

LineReader::LineReader() : interactive_(isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
  if (!interactive_) return;
  rl_initialize();
  using_history();
  stifle_history(kHistoryLines);
  history_file_ = HistoryFile();
  if (!history_file_.empty()) read_history(history_file_.c_str());
}

LineReader::~LineReader() {
  if (history_file_.empty()) return;
  const mode_t mask = umask(077);
  write_history(history_file_.c_str());
  umask(mask);
}

std::optional<std::string> LineReader::Read(const std::string& prompt) {
  std::optional<std::string> line = ReadOne(prompt);
  while (line && line->ends_with('\\')) {
    line->back() = '\n';
    const auto more = ReadOne("... ");
    if (!more) break;
    *line += *more;
  }
  if (interactive_ && line && !line->empty()) add_history(line->c_str());
  return line;
}

std::optional<std::string> LineReader::ReadOne(const std::string& prompt) {
  std::string line;
  if (!interactive_) {
    if (!std::getline(std::cin, line)) return {};
    return line;
  }
  char* typed = readline(prompt.c_str());
  if (typed == nullptr) return {};
  line = typed;
  std::free(typed);
  return line;
}

}  // namespace spa::cli
