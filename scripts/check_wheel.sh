#!/usr/bin/env bash
# The wheel serves where neither the source nor a compiler is: builds it from a clone of HEAD, puts it
# into a fresh environment, and asks the README's question with both of them hidden.
# Usage: check_wheel.sh [PYTHON to build with [PYTHON to run with]]; from 3.12 on they may differ.
set -euo pipefail
build=${1:-python3} run=${2:-${1:-python3}}
source=$(git rev-parse --show-toplevel)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

git clone --quiet "$source" "$folder/clone"
"$build" -m venv "$folder/build"
"$folder/build/bin/pip" wheel --quiet --no-deps --wheel-dir "$folder" "$folder/clone"
rm -rf "$folder/clone" "$folder/build"
wheels=("$folder"/*.whl)
[ ${#wheels[@]} -eq 1 ]
"$run" -m venv "$folder/run"
"$folder/run/bin/pip" install --quiet "${wheels[0]}"
cat > "$folder/ask.py" << 'END'
import spa
answer = spa.Model().generate("not ( True and False ) is")
assert answer.text.endswith("Answer: True"), answer.text
print(repr(answer))
for line in open("/proc/self/maps"):
    name = line.split()[-1]
    if any(part in name for part in ("libfmt", "libhwy", "libutf8proc")):
        assert "site-packages/spa/lib" in name, f"{name} is the system's"
END
cd "$folder"
bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs "$source" --tmpfs /usr/include --tmpfs /usr/lib/gcc \
  env -i HOME=/tmp PATH=/nowhere "$folder/run/bin/python" -I "$folder/ask.py"
echo "$(basename "${wheels[0]}"), $("$run" --version)"
