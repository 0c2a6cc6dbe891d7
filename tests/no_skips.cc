// With CI=true in the environment a skipped test is a failure: what a test needs is in a clone.
// Linked into every test program.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

class NoSkips : public testing::EmptyTestEventListener {
  // Ends the program before "[  SKIPPED ]" is printed, by which ctest would know a skip.
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.skipped()) return;
    std::fprintf(stderr, "Skipped although CI=true: %s\n", result.message());
    std::_Exit(1);  // Google Test holds a lock here that its destructors need
  }
};

[[maybe_unused]] const bool installed = [] {
  const char* ci = std::getenv("CI");
  if (ci == nullptr || std::string_view(ci) != "true") return false;
  testing::UnitTest::GetInstance()->listeners().Append(new NoSkips);
  return true;
}();

}  // namespace
