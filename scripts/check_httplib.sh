#!/usr/bin/env bash
# Runs the server's tests with another release of cpp-httplib, whose internals change: listener.cc
# must fit them all. It compiles with 0.11.4, 0.14.3, 0.16.3, 0.18.7, 0.20.1, 0.30.0 and 0.53.1.
# Usage: check_httplib.sh VERSION FOLDER, where FOLDER holds that release's httplib.h
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 folder=$(cd "$2" && pwd) build=build/httplib-$1
[ -e "$folder/httplib.h" ]
mkdir -p "$build"
cat > "$build/cpp-httplib.pc" << END
Name: cpp-httplib
Description: the header alone
Version: $version
Cflags: -I$folder
END
PKG_CONFIG_PATH=$PWD/$build cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release > /dev/null
cmake --build "$build" --target server_test
ctest --test-dir "$build" -R '^server\.' --output-on-failure
