#!/bin/sh
# Serves the embedded model and lets OpenAI's Python and Node packages, lm-eval and many clients at
# once use it, over the loopback. Installs the packages in build/clients.
# Usage: scripts/check_clients.sh [path/to/spa] [seconds of load]
#
# Needs Python with venv, Node 18 or newer and npm; the first run needs their registries.
set -eu
cd "$(dirname "$0")/.."
spa=$(realpath "${1:-build/release/spa}")
seconds=${2:-20}
work=$PWD/build/clients
tests=$PWD/tests/clients
mkdir -p "$work/node"

if [ ! -e "$work/venv/installed" ]; then
  timeout 120 python3 -m venv "$work/venv"
  timeout 600 "$work/venv/bin/pip" install --quiet openai
  touch "$work/venv/installed"
fi
# What lm-eval needs to talk to a server; its model libraries are gigabytes.
if [ ! -e "$work/venv/lm_eval" ]; then
  timeout 600 "$work/venv/bin/pip" install --quiet --no-deps lm_eval
  timeout 1200 "$work/venv/bin/pip" install --quiet aiohttp datasets dill evaluate jinja2 \
    more_itertools pytablewriter requests rouge-score sacrebleu scikit-learn sqlitedict tenacity \
    tqdm word2number
  touch "$work/venv/lm_eval"
fi
if [ ! -e "$work/node/node_modules/openai" ]; then
  timeout 600 npm install --prefix "$work/node" --no-audit --no-fund --loglevel error openai
fi

pids=
stop_servers() {
  for pid in $pids; do kill "$pid" 2>/dev/null || true; done
  wait
}
trap stop_servers EXIT
trap 'exit 1' INT TERM

# start NAME OPTIONS...: a server on a free port; leaves its address in $url, its process in $pid.
start() {
  name=$1
  shift
  : >"$work/$name.out"
  "$spa" serve --port 0 --quiet "$@" >"$work/$name.out" 2>"$work/$name.err" &
  pid=$!
  pids="$pids $pid"
  for _ in $(seq 300); do
    url=$(grep -o 'http://[0-9.:]*' "$work/$name.out" | head -n 1)
    [ -n "$url" ] && return
    kill -0 "$pid" || break
    sleep 0.1
  done
  echo "the server does not start:" >&2
  cat "$work/$name.err" >&2
  exit 1
}

failed=
# check NAME SECONDS COMMAND...: runs it; its output is shown only if it fails.
check() {
  name=$1
  most=$2
  shift 2
  if timeout "$most" "$@" >"$work/$name.log" 2>&1; then
    echo "passed  $name: $(grep -E '^(Ran |# pass|[0-9]+ clients)' "$work/$name.log")"
  else
    echo "FAILED  $name:"
    tail -n 60 "$work/$name.log"
    failed="$failed $name"
  fi
}

export SPA_API_KEY=check-clients  # read by the servers
export SPA_KEY=$SPA_API_KEY SPA_NODE_MODULES=$work/node
start small --parallel 1 --queue 1
export SPA_SMALL_URL=$url
start server --queue 24  # less than the clients of the load test: some are refused
export SPA_URL=$url SPA=$spa

check python 600 "$work/venv/bin/python" -B "$tests/openai_test.py"
check lm-eval 1200 "$work/venv/bin/python" -B "$tests/lm_eval_test.py"
check node 300 node --test "$tests/openai_test.mjs"
check load $((seconds + 300)) python3 -B "$tests/load_test.py" --url "$SPA_URL" --key "$SPA_KEY" \
  --seconds "$seconds"

# The same with a server that is told to end while it is busy.
start ending --grace 2
check shutdown 120 python3 -B "$tests/load_test.py" --url "$url" --key "$SPA_KEY" \
  --clients 16 --seconds 8 --term "$pid" --grace 2

[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
echo "all passed"
