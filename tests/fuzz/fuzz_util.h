// What the fuzzers share: promises that end the program, and files for readers that take a path.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace spa {

inline void Require(bool condition) {
  if (!condition) std::abort();
}

// Runs `action`, which may refuse its input with an Error of one line, and nothing else.
template <typename Action>
void AcceptOrRefuse(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    Require(!message.empty() && message.find('\n') == std::string_view::npos);
  }
}

// A folder of this process, removed at exit.
inline const std::filesystem::path& ScratchFolder() {
  struct Folder {
    Folder()
        : path(std::filesystem::temp_directory_path() / ("spa-fuzz-" + std::to_string(getpid()))) {
      std::filesystem::create_directories(path);
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::filesystem::path path;
  };
  static const Folder folder;
  return folder.path;
}

inline std::filesystem::path WriteScratch(const char* name, std::string_view bytes) {
  const std::filesystem::path path = ScratchFolder() / name;
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path;
}

inline std::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace spa
