"""Clients that a server must survive: idle, slow, gone, and greedy ones.

  hostile_test.py connections SPA [--seconds 30]   hundreds of idle and slow connections, clients that hang up
  hostile_test.py hang-ups SPA [--seconds 3600]    a client per second that hangs up; a line per minute
  hostile_test.py memory SPA --model M.gguf --memory 2G --most 2.2G    32 clients asking for all they can

Starts the server itself. Every question must be answered or refused with a reason, and the server's memory
must stay where it was (connections, hang-ups) or below --most (memory). Needs nothing but Python and Linux.
"""
import argparse
import collections
import http.client
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time

QUESTION = {"messages": [{"role": "user", "content": "not ( True and False ) or False is"}]}


class Server:
    def __init__(self, arguments):
        self.process = subprocess.Popen([*arguments, "--port", "0", "--quiet"], stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.port = int(re.search(r"http://127.0.0.1:(\d+)", line)[1])

    def resident(self):
        """Bytes now, and the most there ever were."""
        text = open(f"/proc/{self.process.pid}/status").read()
        return tuple(int(re.search(rf"{name}:\s+(\d+) kB", text)[1]) * 1024 for name in ("VmRSS", "VmHWM"))

    def ask(self, body, route="/v1/chat/completions", seconds=3600):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.request("POST", route, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def stop(self):
        self.process.terminate()
        code = self.process.wait(60)
        if code != 0:
            raise SystemExit(f"the server ended with {code}")


def megabytes(count):
    return f"{count / 2**20:.0f} MiB"


def connections(options):
    """400 idle connections, 100 that send a byte now and then, and clients that hang up in the middle."""
    server = Server([options.spa, "serve"])
    end = time.monotonic() + options.seconds
    counts = collections.Counter()
    lock = threading.Lock()

    def count(what):
        with lock:
            counts[what] += 1

    def idle():
        while time.monotonic() < end:
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.settimeout(max(0.1, end - time.monotonic()))
                try:
                    connection.recv(1)  # until the server has had enough
                except OSError:
                    pass
            count("idle")

    def slow():
        text = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{"
        while time.monotonic() < end:
            try:
                with socket.create_connection(("127.0.0.1", server.port)) as connection:
                    for byte in text + b" " * 999:
                        connection.send(bytes([byte]))
                        time.sleep(0.5)
                        if time.monotonic() > end:
                            break
            except OSError:
                pass
            count("slow")

    def hangs_up():
        random.seed(1)
        while time.monotonic() < end:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            try:
                body = json.dumps(dict(QUESTION, stream=random.random() < 0.5))
                connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
                time.sleep(random.random() * 0.2)
            except OSError:
                pass
            connection.close()
            count("hung up")

    status, whole = server.ask(QUESTION)
    assert status == 200, whole
    expected = whole["choices"][0]["message"]["content"]
    threads = [threading.Thread(target=kind, daemon=True)
               for kind, number in ((idle, 300), (slow, 100), (hangs_up, 4)) for _ in range(number)]
    for thread in threads:
        thread.start()
    time.sleep(min(5, options.seconds / 4))
    before = server.resident()[0]
    slowest, asked = 0.0, 0
    while asked < 3 or time.monotonic() < end:
        asked += 1
        start = time.monotonic()
        status, whole = server.ask(QUESTION)
        slowest = max(slowest, time.monotonic() - start)
        if status == 200:
            assert whole["choices"][0]["message"]["content"] == expected, whole
            count("answered")
        else:
            assert status in (429, 503) and whole["error"]["message"], (status, whole)
            count("refused")
    after = server.resident()[0]
    server.stop()
    print(f"{dict(counts)}; slowest answer {slowest:.1f} s; memory {megabytes(before)}, then {megabytes(after)}")
    assert counts["answered"] > 0
    assert after < before + 64 * 2**20, "memory grows"


def hang_ups(options):
    """A client per second that leaves: before its request is whole, while it waits, or while it reads."""
    server = Server([options.spa, "serve"])
    status, whole = server.ask(QUESTION)
    assert status == 200, whole
    expected = whole["choices"][0]["message"]["content"]
    rng = random.Random(1)
    counts = collections.Counter()

    def leave(number):
        body = json.dumps(dict(QUESTION, stream=number % 2 == 0, max_tokens=rng.choice((16, 64, 256, 1024)),
                               block_length=16, early_stop="off", cache=("none", "spa", "dllm")[number % 3])).encode()
        head = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % (server.port, len(body)))
        whole = head + body
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            if number % 5 == 0:
                connection.sendall(whole[:rng.randrange(len(whole))])
                counts["request cut short"] += 1
                return
            connection.sendall(whole)
            time.sleep(rng.random() * 0.8)
            connection.setblocking(False)
            try:
                got = connection.recv(1 << 20)
                assert got.startswith(b"HTTP/1.1 200"), got
                counts["left while reading" if b"[DONE]" not in got and number % 2 == 0 else "left at the end"] += 1
            except BlockingIOError:
                counts["left while waiting"] += 1

    def files():
        return len(os.listdir(f"/proc/{server.process.pid}/fd"))

    start = time.monotonic()
    samples = []
    for number in range(int(options.seconds)):
        time.sleep(max(0.0, start + number - time.monotonic()))
        leave(number)
        if number % 60 == 59 or number + 1 == int(options.seconds):
            time.sleep(0.1)
            samples.append(server.resident()[0])
            print(f"{number + 1} s: {samples[-1] // 1024} kB resident, {files()} files open", flush=True)
    status, whole = server.ask(QUESTION)
    assert status == 200 and whole["choices"][0]["message"]["content"] == expected, whole
    server.stop()
    third = len(samples) // 3
    print(f"{dict(counts)}; memory {megabytes(max(samples[:third + 1]))} at most in the first third, "
          f"{megabytes(max(samples[-third - 1:]))} in the last")
    assert max(samples[-third - 1:]) < max(samples[:third + 1]) + 8 * 2**20, "memory grows"


def memory(options):
    units = {"M": 2**20, "G": 2**30}
    most = float(options.most[:-1]) * units[options.most[-1]]
    server = Server([options.spa, "serve", "-m", options.model, "--memory", options.memory, "--parallel", "32"])
    outcomes = collections.Counter()
    lock = threading.Lock()

    def client(number):
        # The shortest could nearly run together, the longest never fit.
        tokens = (128, 256, 512, 1024, 2048, 4000)[number % 6]
        body = {"prompt": [1, 2, 3, 4], "max_tokens": tokens, "block_length": tokens, "steps": 1,
                "cache": ("none", "spa")[number % 2], "early_stop": "off"}
        status, whole = server.ask(body, "/v1/completions")
        if status != 200:
            assert status in (413, 429) and whole["error"]["message"], (status, whole)
        with lock:
            outcomes[status] += 1
            if status != 200 and outcomes[status] == 1:
                print(f"{status}: {whole['error']['message']}")

    threads = [threading.Thread(target=client, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    peak = server.resident()[1]
    server.stop()
    print(f"{dict(outcomes)} of 32; at most {megabytes(peak)} resident")
    assert sum(outcomes.values()) == 32 and outcomes[200] > 0
    assert peak < most, "more memory than promised"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("connections", "hang-ups", "memory"))
    parser.add_argument("spa")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--model")
    parser.add_argument("--memory", default="2G")
    parser.add_argument("--most", default="2.2G")
    options = parser.parse_args()
    globals()[options.what.replace("-", "_")](options)


if __name__ == "__main__":
    sys.exit(main())
