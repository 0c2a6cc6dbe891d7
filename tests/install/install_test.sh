#!/usr/bin/env bash
# Installs spa, moves the tree, and uses it as a stranger would: examples/ through CMake and through
# pkg-config, man pages, completions.
# Usage: install_test.sh SOURCE BUILD COMPILER LIBDIR
set -euo pipefail
source=$1 build=$2 compiler=$3 libdir=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" > /dev/null
mv "$work/first" "$work/tree"
tree=$work/tree

run() {  # run FOLDER: every example in it works and agrees with the program about the version
  local program
  for program in "$source"/examples/*.c*; do
    program=$(basename "${program%.*}")
    (cd "$source" && LD_LIBRARY_PATH=$tree/$libdir "$1/$program" > "$work/$program.out") ||
      { echo "$1/$program failed"; exit 1; }
  done
  diff "$work/version.out" <("$tree/bin/spa" --version | head -n 1 | cut -d ' ' -f 1,2)
}

for library in spa static; do
  components=$([ $library = static ] && echo static || true)
  cmake -S "$source/tests/install/consumer" -B "$work/$library" -DCMAKE_PREFIX_PATH="$tree" \
    -DCMAKE_CXX_COMPILER="$compiler" -DEXAMPLES="$source/examples" -DLIBRARY=$library \
    -DCOMPONENTS="$components" > /dev/null
  cmake --build "$work/$library" > /dev/null
  run "$work/$library"
done

mkdir "$work/pc"
flags=$(PKG_CONFIG_PATH=$tree/$libdir/pkgconfig pkg-config --cflags --libs spa)
for example in "$source"/examples/*.c*; do
  standard=$([ "${example##*.}" = c ] && echo "-x c -std=c99" || echo -std=c++20)
  # shellcheck disable=SC2086
  "$compiler" -Wall -Wextra -Werror $standard "$example" -x none $flags \
    -o "$work/pc/$(basename "${example%.*}")"
  [ "$(wc -l < "$example")" -le 20 ] || { echo "$example has more than 20 lines"; exit 1; }
done
run "$work/pc"

# Every command has a man page and completes.
commands=$("$tree/bin/spa" --help | sed -n '/^Subcommands:/,$ s/^  \([a-z]*\) .*/\1/p')
[ -n "$commands" ]
for command in $commands; do
  grep -q "^.SH SYNOPSIS" "$tree/share/man/man1/spa-$command.1"
  grep -q "^complete .* -a $command " "$tree/share/fish/vendor_completions.d/spa.fish"
  grep -q "^    '$command:" "$tree/share/zsh/site-functions/_spa"
done
completed=$(bash -c '. "$1"; COMP_WORDS=(spa gener); COMP_CWORD=1; _spa; echo "${COMPREPLY[*]}"
  COMP_WORDS=(spa generate --cache non); COMP_CWORD=3; _spa; echo "${COMPREPLY[*]}"
  COMP_WORDS=(spa serve --api-key-f); COMP_CWORD=2; _spa; echo "${COMPREPLY[*]}"' \
  complete "$tree/share/bash-completion/completions/spa" | paste -sd ' ')
[ "$completed" = "generate none --api-key-file" ] || { echo "completed: $completed"; exit 1; }
