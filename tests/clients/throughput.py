"""Tokens per second of the server: the same requests one after the other and all at once, on the loopback.

    spa synth llada4.gguf --shape llada-8b --layers 4 --type Q4_0
    spa serve -m llada4.gguf --parallel 8 --port 8123 --quiet
    python3 tests/clients/throughput.py --url http://127.0.0.1:8123
"""
import argparse
import concurrent.futures
import json
import time
import urllib.request


def ask(url, index, a):
    body = {"prompt": [1000 + 7 * index + i for i in range(a.prompt)], "max_tokens": a.tokens, "eos": "never", "cache": "spa",
            "block_length": a.block}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        doc = json.load(answer)
    return doc["choices"][0]["text"], doc["usage"]["completion_tokens"]


def timed(work):
    start = time.time()
    answers = work()
    return time.time() - start, answers


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--url", required=True)
    ap.add_argument("--requests", type=int, default=8)
    ap.add_argument("--prompt", type=int, default=20, help="tokens of each prompt")
    ap.add_argument("--tokens", type=int, default=32, help="tokens of each answer")
    ap.add_argument("--block", type=int, default=8, help="block length; 8 is the paper's for GSM8K")
    ap.add_argument("--rounds", type=int, default=3, help="both ways in turn, so that a noisy machine disturbs both")
    a = ap.parse_args()
    ask(a.url, 0, a)                                                  # warm up
    in_turn = at_once = 0.0
    tokens = 0
    equal = True
    with concurrent.futures.ThreadPoolExecutor(a.requests) as pool:
        for _ in range(a.rounds):
            seconds, alone = timed(lambda: [ask(a.url, i, a) for i in range(a.requests)])
            in_turn += seconds
            seconds, together = timed(lambda: list(pool.map(lambda i: ask(a.url, i, a), range(a.requests))))
            at_once += seconds
            equal = equal and alone == together
            tokens += sum(count for _, count in alone)
    print(f"one after the other {tokens / in_turn:.1f} tokens/s, {a.requests} at once {tokens / at_once:.1f} tokens/s: "
          f"{in_turn / at_once:.2f} x; answers {'equal' if equal else 'DIFFER'}")


if __name__ == "__main__":
    main()
