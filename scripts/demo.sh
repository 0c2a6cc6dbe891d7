#!/usr/bin/env bash
# One question, answered by the embedded model without a cache and with SPA-Cache.
# Usage: scripts/demo.sh path/to/spa [question]
set -euo pipefail
spa=$1
question=${2:-False or not ( True ) is}
printf '\nQuestion: %s\n' "$question"
for cache in none spa; do
  printf '\n--- cache: %s\n' "$cache"
  "$spa" generate -p "$question" -n 64 --block-length 16 --watch --cache "$cache"
done
