// A file mapped read-only into memory. Pages are read on first use.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace spa {

class MappedFile {
 public:
  // Throws Error if the file cannot be opened or is not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

  // Returns the pages that lie wholly inside `range` to the system. Reading them again works, but
  // goes to the file. For data that has been repacked.
  void Release(std::span<const std::byte> range) const;

  // Whether the file was written to since it was mapped, so its bytes may differ. Renaming,
  // deleting or replacing the file does not count: the map keeps the old one.
  bool Changed() const;

 private:
  int fd_ = -1;
  struct stat opened_ {};
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace spa
