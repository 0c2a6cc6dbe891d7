#include "base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/mapped_file.h"

namespace spa {
namespace {

std::filesystem::path Folder() {
  // Tests of one program run side by side, each in a process of its own.
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("atomic_file_test." + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

size_t FilesIn(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(AtomicFile, AppearsUnderItsNameOnlyWhenCommitted) {
  const auto folder = Folder(), path = folder / "out";
  {
    AtomicFile file(path);
    file.Write("half", 4);
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_EQ(FilesIn(folder), 0u) << "an abandoned file leaves nothing behind";
  {
    AtomicFile file(path);
    file.Write("whole", 5);
    file.Commit();
  }
  EXPECT_EQ(FilesIn(folder), 1u);
  EXPECT_EQ(MappedFile(path).bytes().size(), 5u);
}

TEST(AtomicFile, AFolderThatDoesNotExistIsAnError) {
  EXPECT_THROW(AtomicFile(Folder() / "missing" / "out"), Error);
}

TEST(MappedFile, RefusesWhatIsNotAFileWithoutHanging) {
  const auto folder = Folder();
  EXPECT_THROW(MappedFile{folder}, Error);
  EXPECT_THROW(MappedFile{folder / "missing"}, Error);
  const auto pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(MappedFile{pipe}, Error);
  std::ofstream(folder / "empty");
  EXPECT_EQ(MappedFile(folder / "empty").bytes().size(), 0u);
}

}  // namespace
}  // namespace spa
