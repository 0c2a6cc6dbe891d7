#!/usr/bin/env bash
# What must not lose anything: disks that are full at any write, processes killed while they write, files
# that shrink while they are read.
# Usage: robust_test.sh path/to/spa path/to/model.gguf path/to/hugging-face-folder
set -u
spa=$1 model=$2 folder=$3
work=$(mktemp -d)
server=
trap '[ -n "$server" ] && kill "$server" 2> /dev/null; rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
passed=0 failed=0

verdict() {  # verdict NAME COMMAND...
  local name=$1; shift
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $name"; head -n 3 "$work/err"; fi
}

# full NAME FILE COMMAND...: the disk is full after 1 kB. One clear line, and FILE is as it was before.
full() {
  local name=$1 file=$2; shift 2
  echo "as it was" > "$file"
  # The limit counts for every file; a write beyond it fails as on a full disk.
  (trap '' XFSZ; ulimit -f 1; "$@") > "$work/out" 2> "$work/err"
  local code=$?
  verdict "$name: exit code $code" [ $code -eq 1 ]
  verdict "$name: one line" [ "$(wc -l < "$work/err")" -eq 1 ]
  verdict "$name: says which file" grep -q "cannot write.*$(basename "$file")" "$work/err"
  verdict "$name: the old file is there" [ "$(cat "$file")" = "as it was" ]
}
echo "1 2 3 300" > "$work/ids"
printf '{"question": "True is", "answer": "True"}\n' > "$work/data"
full quantize "$work/q.gguf" "$spa" quantize "$model" "$work/q.gguf" Q8_0
full convert "$work/c.gguf" "$spa" convert "$folder" "$work/c.gguf"
full logits "$work/l.f32" "$spa" logits -m "$model" --ids "$work/ids" --out "$work/l.f32"
full proxy "$work/p.gguf" "$spa" proxy -m "$model" --out "$work/p.gguf"
profile=("$spa" profile -m "$model" --task jsonl --data "$work/data" -n 16)
full profile "$work/profile.json" "${profile[@]}" --out "$work/profile.json"
full "profile's report" "$work/r.html" "${profile[@]}" --out /dev/null --report "$work/r.html"
full "compare's report" "$work/k.html" "$spa" compare -m "$model" --task jsonl --data "$work/data" -n 16 \
  --caches none --report "$work/k.html"
verdict "no pieces are left" [ -z "$(find "$work" -name '*.tmp')" ]

# An evaluation on a full disk goes on when there is room again.
for i in 1 2 3 4 5 6; do printf '{"question": "not ( True ) is", "answer": "%s"}\n' $i; done > "$work/six"
evaluate=("$spa" eval -m "$model" --task jsonl --data "$work/six" -n 32 --samples "$work/samples" --json)
(trap '' XFSZ; ulimit -f 1; "${evaluate[@]}") > "$work/out" 2> "$work/err"
verdict "a full disk ends an evaluation" [ $? -eq 1 ]
verdict "which goes on later" "${evaluate[@]}" > "$work/out" 2> "$work/err"
verdict "with all its questions" [ "$(grep -c '"correct"' "$work/samples")" -eq 6 ]

# Killed at any moment: the file is the old one or the new one, never a part of it.
"$spa" quantize "$model" "$work/new.gguf" Q8_0 > /dev/null
kept=0 replaced=0 other=0
for i in $(seq 1 24); do
  cp "$model" "$work/target.gguf"
  "$spa" quantize "$work/new.gguf" "$work/target.gguf" F32 > /dev/null 2>&1 &
  sleep "0.$(printf %03d $((i * 12)))"
  kill -9 $! 2> /dev/null
  wait $! 2> /dev/null
  if cmp -s "$model" "$work/target.gguf"; then kept=$((kept + 1))
  elif "$spa" inspect "$work/target.gguf" > /dev/null 2>&1; then replaced=$((replaced + 1))
  else other=$((other + 1)); fi
done
verdict "killed: $kept kept, $replaced replaced, $other neither" [ $other -eq 0 ]

serve() {  # serve FILE: starts a server, and waits for its address
  : > "$work/served"  # that of the server before must not be taken for it
  "$spa" serve -m "$work/$1" --port 0 --quiet > "$work/served" 2> "$work/err" &
  server=$!
  for _ in $(seq 600); do grep -q http "$work/served" && break; sleep 0.1; done
  url=$(grep -o 'http://[0-9.:]*' "$work/served")
}

# A model file that shrinks while it is served: the server says so and ends; it is not stuck.
cp "$model" "$work/shrinks.gguf"
serve shrinks.gguf
truncate -s 1000 "$work/shrinks.gguf"
curl -s -m 300 "$url/v1/completions" -d '{"prompt": "True is", "max_tokens": 8}' > "$work/out"
wait $server
verdict "a file that shrinks ends the server" [ $? -eq 1 ]
server=
verdict "with a message" grep -q "became shorter" "$work/err"

# One that is replaced, as SECURITY.md says: the server goes on with the old one.
cp "$model" "$work/replaced.gguf"
serve replaced.gguf
ask=(curl -s -m 300 "$url/v1/completions" -d '{"prompt": "True is", "max_tokens": 8}')
text() { "${ask[@]}" | grep -o '"text":"[^"]*"'; }
before=$(text)
echo "no model" > "$work/other" && mv "$work/other" "$work/replaced.gguf"
verdict "a replaced file changes nothing" [ -n "$before" ]
verdict "nor later" [ "$(text)" = "$before" ]
rm "$work/replaced.gguf"
verdict "nor does a deleted one" [ "$(text)" = "$before" ]
kill $server; wait $server; server=

# One that is overwritten in place, to the same size: the request is refused, the server says so and ends.
cp "$model" "$work/overwritten.gguf"
serve overwritten.gguf
ask=(curl -s -m 300 "$url/v1/completions" -d '{"prompt": "True is", "max_tokens": 8}')
verdict "before it is overwritten, it answers" [ "$(text)" = "$before" ]
dd if=/dev/zero of="$work/overwritten.gguf" bs=1 seek=$(($(stat -c %s "$model") - 64)) count=64 conv=notrunc 2> /dev/null
"${ask[@]}" > "$work/out"
wait $server
verdict "an overwritten file ends the server" [ $? -eq 1 ]
server=
verdict "the request is told" grep -q "file was changed" "$work/out"
verdict "and so is the operator, in one line" [ "$(grep -c "changed while it was in use" "$work/err")" -eq 1 ]
verdict "and no other" [ "$(wc -l < "$work/err")" -eq 1 ]

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
