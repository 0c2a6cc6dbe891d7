// A file written aside and renamed into place by Commit; an interrupted run leaves nothing behind
// under the final name, and the destructor removes what was not committed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace spa {

class AtomicFile {
 public:
  // Creates `path` + a temporary suffix beside the target. Throws Error if that is not possible.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Throws Error when the disk is full or fails.
  void Write(std::span<const std::byte> bytes);
  void Write(const void* data, size_t size) {
    Write({static_cast<const std::byte*>(data), size});
  }
  uint64_t size() const { return size_; }

  // Flushes to the disk and renames to the final path.
  void Commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

}  // namespace spa
