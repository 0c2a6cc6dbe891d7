#!/bin/sh
# Cross-compiles the kernel tests for 64-bit Arm and runs them under qemu: once for the NEON every
# such processor has, once with the dot-product instructions, once with those of matrices too.
# Usage: scripts/check_neon.sh [BUILD_DIR]
#
# Needs Debian's g++-aarch64-linux-gnu, qemu-user, libhwy-dev, libgtest-dev and libfmt-dev; installs
# the first two if it may. Highway's library for Arm is fetched with apt.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/neon}
mkdir -p "$build/include"
build=$(cd "$build" && pwd)

if ! command -v aarch64-linux-gnu-g++ >/dev/null || ! command -v qemu-aarch64 >/dev/null; then
  apt-get install -y --no-install-recommends g++-aarch64-linux-gnu qemu-user
fi

# Only the headers that do not depend on the processor may be taken from /usr/include.
for name in hwy gtest fmt nlohmann; do ln -sfn /usr/include/$name "$build/include/$name"; done

# The library for Arm, from where this system gets its packages, without changing its settings.
if [ ! -e "$build/hwy/usr/lib/aarch64-linux-gnu/libhwy.so.1" ]; then
  mkdir -p "$build/apt/lists/partial"
  arm_apt() {
    (cd "$build" && apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root \
      -o Dir::State::Lists="$build/apt/lists" -o Dir::State::status=/dev/null -o Dir::Cache="$build/apt" "$@")
  }
  arm_apt update
  arm_apt download libhwy1
  dpkg -x "$build"/libhwy1_*_arm64.deb "$build/hwy"
fi
hwy=$build/hwy/usr/lib/aarch64-linux-gnu

for march in armv8-a armv8.2-a+dotprod armv8.2-a+dotprod+i8mm; do
  out=$build/$march
  mkdir -p "$out"
  : >"$out/objects.new"
  # One object per source, remade when the source or any header is newer.
  newest_header=$(find src/base src/kernels tests/kernels -name '*.h' -printf '%T@ %p\n' |
                  sort -n | tail -1 | cut -d' ' -f2-)
  for source in src/base/*.cc src/kernels/*.cc tests/kernels/*_test.cc \
                /usr/src/googletest/googletest/src/gtest-all.cc \
                /usr/src/googletest/googletest/src/gtest_main.cc; do
    object=$out/$(echo "$source" | tr / _).o
    echo "$object" >>"$out/objects.new"
    if [ "$object" -nt "$source" ] && [ "$object" -nt "$newest_header" ]; then continue; fi
    printf '%s\0%s\0' "$object" "$source"
  done | xargs -0 -r -n 2 -P "$(nproc)" aarch64-linux-gnu-g++ -std=c++20 -O2 -march=$march \
    -ffp-contract=off -DFMT_HEADER_ONLY -DSPA_TEST_DATA='"tests/data"' \
    -DSPA_MODELS_DIR='"models"' \
    -I"$build/include" -I/usr/src/googletest/googletest -Isrc -I. -c -o
  # shellcheck disable=SC2046
  aarch64-linux-gnu-g++ -o "$out/kernels_test" $(cat "$out/objects.new") "$hwy/libhwy.so.1" \
    -lpthread
  rm "$out/objects.new"
  echo "== $march"
  qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$hwy" \
    "$out/kernels_test" --gtest_brief=1
done
