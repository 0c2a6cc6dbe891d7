#include "base/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace spa {

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path_, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    if (std::filesystem::is_symlink(std::filesystem::symlink_status(path_, ignored))) {
      path_ = std::filesystem::weakly_canonical(path_, ignored);
    }
    temporary_ = path_;
    temporary_ += fmt::format(".{}.tmp", ::getpid());
    const auto folder = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
    if (FileExists("/proc/self/fd")) {  // Commit names the file by it
      fd_ = ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0644);
    }
    if (fd_ < 0) {
      fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
      named_ = fd_ >= 0;
    }
  }
  if (fd_ < 0) throw Error("cannot write {}: {}", path_.string(), std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (named_) ::unlink(temporary_.c_str());
}

void AtomicFile::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw Error("cannot write {}: {}", path_.string(), std::strerror(errno));
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    size_ += static_cast<uint64_t>(written);
  }
}

void AtomicFile::Commit() {
  const auto check = [&](bool ok) {
    if (!ok) throw Error("cannot write {}: {}", path_.string(), std::strerror(errno));
  };
  if (!temporary_.empty()) {
    check(::fsync(fd_) == 0);
    if (!named_) {
      const std::string open_file = fmt::format("/proc/self/fd/{}", fd_);
      ::unlink(temporary_.c_str());
      check(::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, temporary_.c_str(),
                     AT_SYMLINK_FOLLOW) == 0);
      named_ = true;
    }
  }
  check(::close(std::exchange(fd_, -1)) == 0);
  if (temporary_.empty()) return;
  check(::rename(temporary_.c_str(), path_.c_str()) == 0);
  named_ = false;
}

bool FileExists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

}  // namespace spa
