// Prints the version of the library that is linked.
#include <spa/version.h>

#include <cstdio>

int main() {
  std::printf("spa %s\n", spa_version());
  return 0;
}
