#!/usr/bin/env bash
# Runs every fuzzer for some seconds, several at a time, and sums up their runs. What they find stays
# in CORPUS, which the builds share; their output in BUILD/NAME.log, where an input that fails is
# named.
# Usage: run_fuzzers.sh BUILD SECONDS JOBS [CORPUS]
set -euo pipefail
cd "$(dirname "$0")/.."
export build=$1 seconds=$2 jobs=$3 corpus=${4-build/fuzz-corpus}

run() {
  local name=$1 log=$build/$1_fuzz.log
  local folders=("$corpus/$name" "tests/fuzz/corpus/$name")
  mkdir -p "${folders[0]}"
  # The words of the parser's own folder, which mutations alone would rarely make.
  grep -rohE '"[A-Za-z0-9_<|>./ :-]{3,32}"' --include='*.cc' \
    $(sed -n 's,^#include "\(file\|lab\|model\|policies\|server\|text\)/.*,src/\1,p' "tests/fuzz/${name}_fuzz.cc") |
    sort -u > "$build/$name.dict"
  if "$build/${name}_fuzz" -max_len=10000 -timeout=10 -max_total_time="$seconds" \
      -print_final_stats=1 -dict="$build/$name.dict" -artifact_prefix="$build/$name-" \
      "${folders[@]}" \
      > "$log" 2>&1; then
    echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs"
  else
    echo "$name failed: see $log"
    tail -n 30 "$log"
    return 1
  fi
}
export -f run

for source in tests/fuzz/*_fuzz.cc; do basename "$source" _fuzz.cc; done |
  xargs -P "$jobs" -I NAME bash -c "run NAME" | tee "$build/runs"
awk '/ runs$/ { sum += $2 } END { print "all: " sum " runs" }' "$build/runs"
