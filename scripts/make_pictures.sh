#!/usr/bin/env bash
# Makes the README's moving pictures from the real page and the real program: docs/pictures/.
# Needs Chromium, `npm ci` in web/, and Debian's webp and python3-pyte.
# Usage: scripts/make_pictures.sh [path/to/spa]
set -euo pipefail
spa=$(realpath "${1:-build/release/spa}")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
"$spa" serve --port 0 --quiet > "$work/serve" 2> "$work/log" &
server=$!
trap 'kill "$server"; rm -rf "$work"' EXIT
for _ in $(seq 300); do
  url=$(grep -o 'http://[0-9.:]*' "$work/serve" | head -n 1) && break
  sleep 0.1
done

mkdir -p docs/pictures
encode() {  # encode NAME: the frames in $work/NAME
  xargs img2webp -loop 0 -lossy -q 55 -m 6 -o "docs/pictures/$1.webp" < "$work/$1/list"
  echo "docs/pictures/$1.webp: $(stat -c %s "docs/pictures/$1.webp") bytes"
}
node scripts/pictures/take_pictures.mjs page "$url" "$work/page"
encode page
PATH="$(dirname "$spa"):$PATH" /usr/bin/python3 scripts/pictures/record_terminal.py 100 20 \
  spa demo --pause 60 'not ( True and False ) or False is' > "$work/demo.json"
node scripts/pictures/take_pictures.mjs terminal "$work/demo.json" "$work/demo"
encode demo
