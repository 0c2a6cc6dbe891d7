#!/usr/bin/env bash
# What every command promises: its --help works and has an example, and a bad call gets exactly one
# line on stderr, nothing on stdout and exit code 1 or 2. The commands are those `spa --help` lists.
# Usage: commands_test.sh path/to/spa
set -u
spa=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
checks=0 failed=0

run() { timeout 300 "$spa" "$@" > "$work/out" 2> "$work/err" < /dev/null; code=$?; }
fail() { failed=$((failed + 1)); echo "FAILED: spa $*"; head -n 3 "$work/err"; }
helps() {  # helps COMMAND ARGUMENTS...: they explain the command
  local command=$1; shift
  checks=$((checks + 1))
  run "$@"
  { [ $code -eq 0 ] && [ ! -s "$work/err" ] && grep -q "^Usage: spa $command" "$work/out" &&
    grep -q "^  spa $command" "$work/out"; } || fail "$*"
}
refused() {  # refused ARGUMENTS...
  checks=$((checks + 1))
  run "$@"
  { { [ $code -eq 1 ] || [ $code -eq 2 ]; } && [ ! -s "$work/out" ] &&
    [ "$(wc -l < "$work/err")" -eq 1 ] && grep -q '^spa: .' "$work/err"; } || fail "$*"
}

commands=$("$spa" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]\{1,\}\) .*/\1/p')
[ "$(wc -w <<< "$commands")" -ge 10 ] || { echo "FAILED: spa --help lists no commands"; exit 1; }
for command in $commands; do
  helps "$command" "$command" --help
  helps "$command" "$command" -h
  helps "$command" help "$command"
  help=$("$spa" "$command" --help)
  refused "$command" --nonsense
  refused "$command" --nonsense=1 -9
  # Flags that many commands have, each with a value that makes no sense. Where a command needs more
  # than that, this is one mistake of several.
  while read -r flag value; do
    grep -q -- "$flag[ ,]" <<< "$help" || continue
    refused "$command" "$flag" "$value"
    # Loading a model may take a minute: what is wrong without it is said before.
    [ "$flag" != --model ] && grep -q -- "--model[ ,]" <<< "$help" || continue
    refused "$command" "$flag" "$value" --model /nonexistent
    grep -q /nonexistent "$work/err" && [ "$value" != /nonexistent ] && fail "$command $flag $value: after loading"
  done <<'FLAGS'
--model /nonexistent
--threads 0
--threads two
--gen-length -5
--gen-length 12x
--block-length 0.5
--steps 99999999999999999999
--kv f31
--cache nothing
--caches none,nothing
--data /nonexistent
--rank -1
--port 99999
--task nothing
--seed x
FLAGS
  refused "$command" one too many arguments for any command
done
refused nonsense
refused --nonsense
refused

echo "$checks checks, $failed failed"
[ $failed -eq 0 ]
