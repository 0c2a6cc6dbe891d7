// A file that gets its name in Commit. Until then it has none, where the file system supports that,
// so that a killed run leaves nothing behind; elsewhere it is renamed into place. Links are
// followed; anything but a regular file (a device, a pipe) is written directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace spa {

class AtomicFile {
 public:
  // Throws Error if nothing can be written there.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Throws Error when the disk is full or fails.
  void Write(std::span<const std::byte> bytes);
  void Write(const void* data, size_t size) { Write({static_cast<const std::byte*>(data), size}); }
  uint64_t size() const { return size_; }

  // Flushes to the disk and gives the file its name.
  void Commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;  // the name until Commit; empty if written directly
  bool named_ = false;               // whether it exists under that name
  int fd_ = -1;
  uint64_t size_ = 0;
};

// Also false if permission is denied.
bool FileExists(const std::filesystem::path& path);

}  // namespace spa
