#!/usr/bin/env bash
# Every command works for a tiny model of every family (tests/data/families), from its folder and
# from the converted file. The folders have no tokenizer: this gives each one of single bytes.
# Usage: families_test.sh path/to/spa path/to/tests/data
set -u
spa=$1 data=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export XDG_CACHE_HOME=$work/cache
checks=0 failed=0
fail() { failed=$((failed + 1)); echo "FAILED: $family: spa $*"; head -n 5 "$work/err"; }
works() {  # works ARGUMENTS...
  checks=$((checks + 1))
  timeout 300 "$spa" "$@" > "$work/out" 2> "$work/err" < /dev/null || fail "$*"
}
says() { grep -q -- "$1" "$work/out" || fail "... does not say $1"; }

# Serves one request.
serve() {
  checks=$((checks + 1))
  : > "$work/served"  # that of the server before must not be taken for it
  "$spa" serve -m "$1" --port 0 --quiet -t 1 > "$work/served" 2> "$work/err" &
  local server=$! port= body answer
  for _ in $(seq 600); do
    port=$(sed -n 's|.*http://127.0.0.1:\([0-9]*\) .*|\1|p' "$work/served")
    [ -n "$port" ] && break
    kill -0 $server 2> /dev/null || break
    sleep 0.1
  done
  body='{"prompt":"To be","max_tokens":8,"seed":1}'
  if [ -n "$port" ]; then
    exec 3<> "/dev/tcp/127.0.0.1/$port"
    printf 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n' >&3
    printf 'Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" >&3
    answer=$(timeout 300 cat <&3)
    exec 3>&-
    grep -q '"choices"' <<< "$answer" || { echo "$answer" > "$work/err"; fail "serve -m $1"; }
  else
    fail "serve -m $1"
  fi
  kill $server 2> /dev/null
  wait $server 2> /dev/null
}

echo "3 17 42 99 8 77 120 5" > ids
echo '{"question": "1+1=", "answer": "2"}' > questions.jsonl
echo "To be or not" > prompts

# family, the texts and ids of its special tokens
while read -r family tokens; do
  folder=$data/families/$family/model
  # As it is, without a tokenizer.
  works inspect -m "$folder"
  works inspect -m "$folder" --json
  works logits -m "$folder" --ids ids --out logits.f32
  works generate -m "$folder" --ids ids --json -n 8 --block-length 8
  says '"ids"'
  # With one.
  cp -r "$folder" "$family"
  chmod -R u+w "$family"
  added=
  for token in $tokens; do
    added+="${added:+,}{\"id\":${token##*=},\"content\":\"${token%=*}\",\"special\":true,"
    added+='"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}'
  done
  sed "s#ADDED#${added//&/\\&}#" "$data/byte_tokenizer.json.in" > "$family/tokenizer.json"
  works convert "$family" "$family.gguf"
  works quantize "$family.gguf" "$family-Q8_0.gguf" Q8_0
  for model in "$family" "$family-Q8_0.gguf"; do
    works inspect -m "$model"
    says "$family\|dream"
    works generate -m "$model" --raw -p "To be" -n 8 --block-length 8 --json
    works bench -m "$model" --prompt-tokens 16 -n 8 --block-length 8 --repeat 1 --caches none
    works eval -m "$model" --raw --task jsonl --data questions.jsonl -n 8 --block-length 8
    caches=none,block:refresh=1
    [ "$family" = diffusion-gemma ] && caches=none,block
    works compare -m "$model" --prompts prompts --caches $caches -n 8 --block-length 8
    serve "$model"
  done
  if [ "$family" != diffusion-gemma ]; then
    works proxy -m "$family" --rank 8
    works profile -m "$family" --task jsonl --data questions.jsonl -n 8 --block-length 8 --early-stop off
    works generate -m "$family" --raw -p "To be" -n 8 --block-length 8 --cache spa
  fi
  rm -rf "$family" "$family".gguf "$family-Q8_0.gguf"
done << 'TABLE'
a2d-qwen2 <|im_start|>=507 <|endoftext|>=508 <|im_end|>=509 <|mask|>=511
a2d-qwen3 <|im_start|>=507 <|endoftext|>=508 <|im_end|>=509 <|mask|>=511
diffusion-gemma <zero>=0 <one>=1 <two>=2
dreamon <|beginoftext|>=315 <|im_start|>=310 <|im_end|>=311 <|endoftext|>=316 <|mask|>=319
fast-dllm-v2 <|endoftext|>=316 <|im_start|>=310 <|im_end|>=317 |<MASK>|=319
llada-moe <role>=310 </role>=311 <|role_end|>=312 <|endoftext|>=317 <|mask|>=319
llada2 <role>=306 </role>=307 <|role_end|>=308 <|endoftext|>=312 <|mask|>=315
rnd1 <|endoftext|>=316 <|im_end|>=317 <|MASK|>=319
sdar <|im_start|>=505 <|im_end|>=506 <|endoftext|>=508 <|MASK|>=511
TABLE
echo "$checks checks, $failed failed"
[ $checks -gt 150 ] && [ $failed -eq 0 ]
