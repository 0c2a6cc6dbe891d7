#!/usr/bin/env bash
# Runs every fuzzer for some seconds, several at a time. What it finds stays in BUILD/corpus, its
# output in BUILD/NAME.log; an input that fails is named there.
# Usage: run_fuzzers.sh BUILD SECONDS JOBS
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1 seconds=$2 jobs=$3

run() {
  local name=$1 build=$2 seconds=$3
  local corpus=("$build/corpus/$name")
  mkdir -p "${corpus[0]}"
  if [ -d "tests/fuzz/corpus/${name%_fuzz}" ]; then corpus+=("tests/fuzz/corpus/${name%_fuzz}"); fi
  if "$build/$name" -max_len=4096 -max_total_time="$seconds" -print_final_stats=1 \
      -artifact_prefix="$build/$name-" "${corpus[@]}" > "$build/$name.log" 2>&1; then
    echo "$name: $(grep number_of_executed_units "$build/$name.log" | grep -o '[0-9]*$') runs"
  else
    echo "$name failed: see $build/$name.log"
    tail -n 30 "$build/$name.log"
    return 1
  fi
}
export -f run

for source in tests/fuzz/*_fuzz.cc; do basename "$source" .cc; done |
  xargs -P "$jobs" -I NAME bash -c "run NAME '$build' '$seconds'"
