// What the fuzzers share: promises that end the program, and files for readers that take a path.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
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

// A folder of this process in memory, where the system has one; removed at exit.
inline const std::filesystem::path& ScratchFolder() {
  struct Folder {
    Folder() {
      const std::filesystem::path memory = "/dev/shm";
      const bool has_memory = access(memory.c_str(), W_OK) == 0;
      path = (has_memory ? memory : std::filesystem::temp_directory_path()) /
             ("spa-fuzz-" + std::to_string(getpid()));
      std::filesystem::create_directories(path);
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::filesystem::path path;
  };
  static const Folder folder;
  return folder.path;
}

// A file of that folder. It stays open: most of the time of a run would go into creating it.
class ScratchFile {
 public:
  explicit ScratchFile(const char* name)
      : path_(ScratchFolder() / name),
        fd_(open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    Require(fd_ >= 0);
  }
  ~ScratchFile() { close(fd_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

  void Write(std::string_view bytes) {
    Require(pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    Require(ftruncate(fd_, static_cast<off_t>(bytes.size())) == 0);
  }
  std::string Read() const {
    struct stat status {};
    Require(fstat(fd_, &status) == 0);
    std::string bytes(static_cast<size_t>(status.st_size), ' ');
    Require(pread(fd_, bytes.data(), bytes.size(), 0) == status.st_size);
    return bytes;
  }

 private:
  std::filesystem::path path_;
  int fd_;
};

inline std::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace spa
