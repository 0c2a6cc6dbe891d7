#!/usr/bin/env bash
# Installs what spa is built with, or names it. The table below knows four package systems.
#   install_packages.sh build test      install what a build and the tests need
#   install_packages.sh --tell hwy fmt  one line: how to get these
#   install_packages.sh --tools         the same for the programs a build calls, if any is missing
set -euo pipefail

# use    name          Debian, Ubuntu       Fedora              Arch           Homebrew
table='
  build  c++           g++                  gcc-c++             gcc            gcc
  build  cmake         cmake                cmake               cmake          cmake
  build  ninja         ninja-build          ninja-build         ninja          ninja
  build  pkg-config    pkg-config           pkgconf-pkg-config  pkgconf        pkgconf
  build  hwy           libhwy-dev           highway-devel       highway        highway
  build  Eigen3        libeigen3-dev        eigen3-devel        eigen          eigen
  build  nlohmann_json nlohmann-json3-dev   json-devel          nlohmann-json  nlohmann-json
  build  CLI11         libcli11-dev         cli11-devel         cli11          cli11
  build  fmt           libfmt-dev           fmt-devel           fmt            fmt
  build  cpp-httplib   libcpp-httplib-dev   cpp-httplib-devel   cpp-httplib    cpp-httplib
  build  libedit       libedit-dev          libedit-devel       libedit        libedit
  build  libutf8proc   libutf8proc-dev      utf8proc-devel      libutf8proc    utf8proc
  test   GTest         libgtest-dev         gtest-devel         gtest          googletest
  test   bwrap         bubblewrap           bubblewrap          bubblewrap     python
  test   python3-venv  python3-venv         python3             python         python
  test   python3-dev   python3-dev          python3-devel       python         python
  test   curl          curl                 curl                curl           curl
  format clang-format  clang-format-14      clang-tools-extra   clang          clang-format
  lint   clang-tidy    clang-tidy-14        clang-tools-extra   clang          llvm
  lint   clang++-14    clang-14             clang               clang          llvm
  fuzz   clang++       clang                clang               clang          llvm
  fuzz   libFuzzer     libclang-rt-14-dev   compiler-rt         compiler-rt    llvm
  web    node          nodejs               nodejs              nodejs         node
  web    npm           npm                  nodejs-npm          npm            node
  web    chromium      chromium             chromium            chromium       chromium
  site   mkdocs        mkdocs               mkdocs              mkdocs         mkdocs
  site   material      mkdocs-material      mkdocs-material     mkdocs-material mkdocs-material
  site   matplotlib    python3-matplotlib   python3-matplotlib  python-matplotlib python-matplotlib
'

# packages COLUMN FIELD VALUE... prints column COLUMN of the rows whose FIELD is one of VALUE.
packages() {
  awk -v column="$1" -v field="$2" -v values=" ${*:3} " \
    'NF && index(values, " " $field " ") && !seen[$column]++ { printf "%s%s", sep, $column; sep = " " }' \
    <<< "$table"
}

tell() {
  echo "spa needs: $*. Debian: apt-get install $(packages 3 2 "$@");" \
       "Fedora: dnf install $(packages 4 2 "$@"); Arch: pacman -S $(packages 5 2 "$@");" \
       "Homebrew: brew install $(packages 6 2 "$@")"
}

case ${1-} in
  --tell)
    tell "${@:2}"
    exit ;;
  --tools)
    missing=()
    for tool in c++ cmake ninja pkg-config; do
      command -v "$tool" > /dev/null || missing+=("$tool")
    done
    [ ${#missing[@]} -eq 0 ] && exit
    tell "${missing[@]}" >&2
    exit 1 ;;
esac

as_root=()
if [ "$(id -u)" -ne 0 ] && command -v sudo > /dev/null; then as_root=(sudo); fi
if command -v apt-get > /dev/null; then
  missing=()
  for package in $(packages 3 1 "$@"); do
    # Node.js from elsewhere brings npm, and Debian's cannot be installed beside it.
    if [ "$package" = npm ] && command -v npm > /dev/null; then continue; fi
    status=$(dpkg-query -W -f='${Status}' "$package" 2> /dev/null || true)
    [ "$status" = "install ok installed" ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && exit
  echo "Installing: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" > /dev/null
elif command -v dnf > /dev/null; then
  "${as_root[@]}" dnf install -y $(packages 4 1 "$@")
elif command -v pacman > /dev/null; then
  "${as_root[@]}" pacman -S --needed --noconfirm $(packages 5 1 "$@")
elif command -v brew > /dev/null; then
  brew install $(packages 6 1 "$@")
else
  echo "No apt-get, dnf, pacman or brew here. Please install: $(packages 2 1 "$@")" >&2
  exit 1
fi
