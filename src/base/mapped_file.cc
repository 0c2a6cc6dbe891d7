#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace spa {

MappedFile::MappedFile(const std::filesystem::path& path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not hang
  if (fd_ < 0) throw Error("cannot open {}: {}", path.string(), std::strerror(errno));
  if (::fstat(fd_, &opened_) != 0 || !S_ISREG(opened_.st_mode)) {
    ::close(fd_);
    throw Error("{} is not a file", path.string());
  }
  size_ = static_cast<size_t>(opened_.st_size);
  if (size_ == 0) return;
  void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_, 0);
  if (map == MAP_FAILED) {
    const int error = errno;
    ::close(fd_);
    throw Error("cannot map {}: {}", path.string(), std::strerror(error));
  }
  data_ = static_cast<const std::byte*>(map);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
  ::close(fd_);
}

bool MappedFile::Changed() const {
  struct stat now {};
  if (::fstat(fd_, &now) != 0) return true;
  return now.st_size != opened_.st_size || now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
         now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec;
}

void MappedFile::Release(std::span<const std::byte> range) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(range.data() + range.size()) / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a page is found by rounding
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace spa
