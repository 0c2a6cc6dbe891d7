#include <gtest/gtest.h>
#include <link.h>

namespace spa {
namespace {

int FindThreadStorage(dl_phdr_info* info, size_t, void* bytes) {
  for (size_t i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type == PT_TLS) {
      *static_cast<size_t*>(bytes) = info->dlpi_phdr[i].p_memsz;
    }
  }
  return 1;  // the program comes first, and everything of ours is in it
}

// A server has hundreds of threads that only wait for a client. Each of them pays for all
// thread-local storage of the program; once that was 1.1 MB.
TEST(ThreadStorage, IsSmall) {
  size_t bytes = 0;
  dl_iterate_phdr(FindThreadStorage, &bytes);
  EXPECT_GT(bytes, 0u);
  EXPECT_LT(bytes, size_t{64} << 10);
}

}  // namespace
}  // namespace spa
