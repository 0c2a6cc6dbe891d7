#!/usr/bin/env bash
# The program as people meet it: good calls work, bad ones get one clear line and exit code 1 or 2.
# Usage: cli_test.sh path/to/spa path/to/model.gguf
set -u
spa=$1 model=$2
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
passed=0 failed=0

check() {  # check NAME COMMAND...: the command succeeds
  local name=$1; shift
  if "$@" > "$work/new" 2> "$work/err"; then passed=$((passed + 1)); else
    failed=$((failed + 1)); echo "FAILED: $name"; tail -n 3 "$work/err"
  fi
  mv "$work/new" "$work/out"  # the next check may look at it
}
refused() {  # refused NAME PATTERN COMMAND...: exit code 1 or 2, one line that matches PATTERN
  local name=$1 pattern=$2; shift 2
  timeout 300 "$@" > "$work/out" 2> "$work/err"
  local code=$?
  if { [ $code -eq 1 ] || [ $code -eq 2 ]; } && [ "$(wc -l < "$work/err")" -eq 1 ] &&
      grep -qi -- "$pattern" "$work/err"; then passed=$((passed + 1)); else
    failed=$((failed + 1)); echo "FAILED: $name (exit code $code)"; head -n 3 "$work/err"
  fi
}
json() { python3 -c "import json,sys; d=json.load(open(sys.argv[1])); sys.exit(0 if eval(sys.argv[2]) else 1)" "$work/out" "$1"; }

ask=(generate -p 'True and not False is' -n 32 --block-length 8)
check "an answer from the embedded model" "$spa" "${ask[@]}"
check "an answer appears on stdout" grep -q . "$work/out"
check "json" "$spa" "${ask[@]}" --json
if command -v python3 > /dev/null; then
  check "json holds the promised keys" json "all(k in d for k in 'text ids prompt_tokens generated_tokens steps seconds ttft_seconds tokens_per_second rows_computed rows_total cache peak_memory_bytes'.split())"
fi
check "spa cache" "$spa" "${ask[@]}" --cache spa
check "prompt on stdin" bash -c "echo 'True is' | '$spa' generate -n 16 --block-length 16"
check "watch without a terminal" "$spa" "${ask[@]}" --watch
check "inspect" "$spa" inspect --tensors
check "help has an example" bash -c "'$spa' generate --help | grep -q 'spa generate -p'"
check "quantize" "$spa" quantize "$model" "$work/q8.gguf" Q8_0
check "generate from the quantised file" "$spa" "${ask[@]}" -m "$work/q8.gguf"
echo "1 2 3 300" > "$work/ids.txt"
check "logits" "$spa" logits -m "$model" --ids "$work/ids.txt" --out "$work/logits.f32"
check "logits have the right size" [ "$(stat -c %s "$work/logits.f32")" -eq $((4 * 512 * 4)) ]
mkfifo "$work/pipe"
cat "$work/pipe" > "$work/piped" &
check "logits into a pipe" "$spa" logits -m "$model" --ids "$work/ids.txt" --out "$work/pipe"
wait
check "the pipe carried them and is still one" bash -c "cmp '$work/piped' '$work/logits.f32' && [ -p '$work/pipe' ]"
ln -s logits.f32 "$work/link.f32"
check "logits through a link" "$spa" logits -m "$model" --ids "$work/ids.txt" --out "$work/link.f32"
check "the link is still one" [ -L "$work/link.f32" ]
check "help of a command" bash -c "'$spa' help proxy | grep -q 'Usage: spa proxy'"
check "stderr that is full" bash -c "'$spa' generate -p 'True is' -n 16 2> /dev/full"

# What a person tries.
check "one of a thing has no s" bash -c "'$spa' generate -p 'True is' -n 1 --block-length 1 2>&1 | grep -q '1 token .* 1 step '"
check "a pause per step waits on terminals only" "$spa" "${ask[@]}" --watch --pause 10000
check "a chat asks one question at a time" bash -c "printf 'not ( True ) is\nnot ( False ) is\n' | '$spa' chat > '$work/chat'"
check "its second answer is right" grep -q 'Answer: True' "$work/chat"
refused "a question it was not taught" "knows puzzles of six kinds" "$spa" generate -p 'Why is the sky blue?'
check "unless it is asked raw" "$spa" generate --raw -p 'Why is the sky blue?' -n 16
refused "a demo of it" "knows puzzles" "$spa" demo 'Why is the sky blue?'
refused "almost a command" "did you mean 'generate'" "$spa" genrate -p hi
refused "almost an option" "did you mean '--threshold'" "$spa" generate --treshold 0.9 -p hi
refused "almost a cache" "did you mean 'fast-dual'" "$spa" generate --cache fast-duel -p hi
refused "a cache beside exact" "no cache: leave out --cache$" "$spa" generate --exact --cache spa -p hi
refused "a cache's option beside exact" "leave out --cache-opt" "$spa" generate --exact on --cache-opt rank=8 -p hi
refused "steps beside exact" "leave out steps-per-block" "$spa" generate --exact --steps-per-block 8 -p 'True is'
check "a demo says Question once" bash -c "'$spa' demo --pause 0 'Question: Nadia lies. Boris says Nadia tells the truth. Does Boris tell the truth?' | head -n 1 | grep -q '^Question: Nadia'"
check "a comparison says what short blocks do" bash -c "'$spa' compare --caches fast-dual --block-length 1 | grep -q 'try --block-length 16'"
refused "a credit's decay without a credit" "nothing without credit" "$spa" generate -p 'True is' --credit-decay 0.5
refused "an exact demo" "nothing to compare" "$spa" demo --exact
refused "an exact comparison" "nothing to compare" "$spa" compare --exact
check "exact stands alone" bash -c "'$spa' generate -n 16 --json --exact -p 'True is' | grep -q '\"cache\":\"none\"'"
check "and takes off" bash -c "'$spa' generate -n 16 --json --exact off -p 'True is' | grep -q '\"cache\":\"spa'"
check "and none" bash -c "'$spa' generate -n 16 --json --cache none -p 'True is' --exact"
check "and takes no question for its value" "$spa" demo --prophet 'not ( True ) is' --pause 0
refused "type without a shape" "requires --shape" "$spa" bench --type Q8_0
refused "layers without a shape" "requires --shape" "$spa" bench --layers 2
refused "kernels of a model" "excludes" "$spa" bench --kernels -m "$model"
refused "kernels with caches" "excludes" "$spa" bench --kernels --caches spa
refused "a system message nobody reads" "excludes" "$spa" generate --raw --system x -p hi
refused "a pause without a picture" "requires --watch" "$spa" generate --pause 5 -p hi
refused "a limit of no file" "requires --data" "$spa" compare --limit 3
refused "rank 0" "rank" "$spa" proxy -r 0
refused "threshold above 1" "from 0 to 1" "$spa" generate -p 'True is' --threshold 2
refused "more steps than tokens" "more than the" "$spa" generate -p 'True is' --steps 1000
refused "a type the width does not fit" "another type" "$spa" quantize "$model" "$work/x.gguf" Q4_K
mkdir "$work/sealed"
if [ "$(id -u)" -ne 0 ]; then chmod a-w "$work/sealed"; sealed=$work/sealed; else sealed=/proc; fi
cp "$model" "$work/own.gguf"
refused "proxies that cannot be stored" "not stored" env XDG_CACHE_HOME="$sealed" "$spa" proxy -m "$work/own.gguf"
refused "a report that cannot be written" "cannot write" \
  env XDG_CACHE_HOME="$work/cache" "$spa" profile --report "$work/no/report.html" -m "$work/own.gguf"
check "no profile is left of that" [ ! -e "$work/cache" ]
race=(bench --race --race-prompts 24 -n 32 --block-length 8 --tokens-per-step 1,4)
check "a race" "$spa" "${race[@]}"
check "a race says what it computed" grep -q "first two blocks and the last" "$work/out"
cat > "$work/llama-bench" <<'PROGRAM'
#!/bin/sh
case "$*" in
  *"-n 0"*) echo '[{"n_prompt": 24, "n_gen": 0, "n_depth": 0, "avg_ns": 2000000000}]' ;;
  *) echo '[{"n_prompt": 0, "n_gen": 16, "n_depth": 24, "avg_ns": 1600000000}]' ;;
esac
PROGRAM
chmod +x "$work/llama-bench"
check "a race against a program" "$spa" "${race[@]}" --llama-bench "$work/llama-bench" --llama-model "$model"
check "2 s and 32 tokens of 0.1 s" grep -Eq "llama.cpp +1 +2.0 +5.2" "$work/out"

requests() { "$spa" bench --caches none --prompt-tokens 8 -n 8 --block-length 8 --repeat 1 --steps 1 --json --parallel "$1"; }
one=$(requests 1 | sed 's/.*"memory_bytes":\([0-9]*\).*/\1/')
three=$(requests 3 | sed 's/.*"memory_bytes":\([0-9]*\).*/\1/')
check "three requests at once keep three states" [ "$three" -eq $((3 * one)) ]
refused "one state adopted by several requests" "excludes" "$spa" bench --parallel 2 --warm

refused "no command" "subcommand" "$spa"
refused "a race without a rival's model" "--llama-model" "$spa" "${race[@]}" --llama-bench "$work/llama-bench"
refused "a rival that is none" "no JSON" "$spa" "${race[@]}" --llama-bench echo --llama-model "$model"
refused "a race of one prompt length" "excludes" "$spa" bench --race --prompt-tokens 24
refused "a race of caches" "excludes" "$spa" bench --race --caches spa
refused "a race's option without a race" "requires --race" "$spa" bench --tokens-per-step 4
refused "a rate of zero" "at least 1" "$spa" bench --race --tokens-per-step 0
refused "unknown command" "no command 'bogus'" "$spa" bogus
refused "negative count" "whole number" "$spa" generate -p hi -n -1
refused "count beyond 64 bits" "whole number" "$spa" generate -p hi --seed 99999999999999999999
refused "the first of those" "to 18446744073709551615" "$spa" generate -p hi --seed 18446744073709551616
refused "empty model name" "empty" "$spa" "${ask[@]}" -m ''
refused "two prompts" "excludes" "$spa" "${ask[@]}" -f "$work/ids.txt"
refused "a prime length" "take 128" "$spa" generate -m "$model" -p 'True is' -n 97
refused "nothing to measure" "longer --gen" "$spa" bench --gen-length 1 --block-length 1 --prompt-tokens 8 --json
printf '{"question": "True is", "answer": "True"}' > "$work/data.jsonl"
refused "samples over somebody's file" "does not hold samples" \
  "$spa" eval --task jsonl --data "$work/data.jsonl" --samples "$work/data.jsonl"
check "that file is as it was" grep -q question "$work/data.jsonl"
refused "samples on a device" "not a regular file" \
  "$spa" eval --task jsonl --data "$work/data.jsonl" --samples /dev/full
refused "report that cannot be written" "cannot write" \
  "$spa" compare --task jsonl --data "$work/data.jsonl" --caches none --report "$work/no/report.html"
refused "unknown flag" "nonsense" "$spa" generate --nonsense
refused "missing model" "no model at" "$spa" "${ask[@]}" -m "$work/nothing.gguf"
refused "folder without a model" "config.json" "$spa" "${ask[@]}" -m "$work"
head -c 100000 "$model" > "$work/cut.gguf"
refused "truncated model" "cut.gguf" "$spa" "${ask[@]}" -m "$work/cut.gguf"
echo "not a model" > "$work/text.gguf"
refused "text as a model" "text.gguf" "$spa" "${ask[@]}" -m "$work/text.gguf"
refused "block that does not divide" "not a multiple" "$spa" generate -p 'True is' -n 30 --block-length 8
refused "steps that do not divide" "steps" "$spa" generate -p 'True is' -n 32 --block-length 8 --steps 6
refused "prompt and answer beyond the context" "context" "$spa" generate -p 'True is' -n 4096 --block-length 4096
refused "huge length" "whole number" "$spa" generate -p hi -n 1000000000000 --block-length 1000000000000
refused "empty prompt" "empty" bash -c "'$spa' generate -f - < /dev/null"
refused "unknown cache" "choose from" "$spa" "${ask[@]}" --cache nothing
refused "unknown cache option" "it has" "$spa" "${ask[@]}" --cache spa --cache-opt rang=3
refused "rank above the width" "beyond" "$spa" "${ask[@]}" --cache spa --cache-opt rank=1000
refused "missing output folder" "cannot write" "$spa" quantize "$model" "$work/no/out.gguf" Q8_0
refused "unknown type" "choose from" "$spa" quantize "$model" "$work/x.gguf" Q3_K
refused "wrong ids" "not a token id" bash -c "echo '1 two' > '$work/bad'; '$spa' logits --ids '$work/bad' --out '$work/o'"
refused "id outside the vocabulary" "outside" bash -c "echo '1 99999' > '$work/bad'; '$spa' logits --ids '$work/bad' --out '$work/o'"
refused "closed output" "standard output" bash -c "'$spa' inspect > /dev/full"
refused "closed output, version" "standard output" bash -c "'$spa' --version > /dev/full"
if [ "$(find "$work" -name '*.tmp' | wc -l)" -eq 0 ]; then passed=$((passed + 1)); else
  failed=$((failed + 1)); echo "FAILED: temporary files left behind"
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
