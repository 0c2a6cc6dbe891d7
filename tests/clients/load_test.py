"""Many impatient clients at once: answers must be those a request gets alone, and none may be lost.

Starts nothing: --url is a server of the embedded model. Asks every distinct request alone, then
sends them from many clients, streamed or not, some of which hang up while they wait or read. With
--term PID the server is told to end half-way, and every client must learn what became of it.
Needs nothing but Python.
"""
import argparse
import collections
import http.client
import json
import os
import random
import signal
import sys
import threading
import time
import urllib.parse

QUESTIONS = [
    "not ( True ) is",
    "False or not ( True ) is",
    "not ( True and False ) or False is",
    "( False or not True ) and True is",
]
CANVASES = [  # short and long, small and whole blocks
    {"max_tokens": 8, "block_length": 8},
    {"max_tokens": 32},
    {"max_tokens": 64, "block_length": 16, "stop": ["Answer"]},
    {"max_tokens": 96, "temperature": 1.0, "seed": 3},
]
CACHES = ["none", "spa", "dllm", "fast-dual"]

# What can become of a request.
ANSWERED, REFUSED, ABANDONED = "answered", "refused (429)", "abandoned by us"
TOLD, CLOSED = "told that the server ends", "connection refused"


class Problem(Exception):
    """The server did what it never may."""


def distinct_requests():
    for i, question in enumerate(QUESTIONS):
        for k, canvas in enumerate(CANVASES):
            yield {**canvas, "prompt": question, "cache": CACHES[(i + k) % len(CACHES)]}


class Server:
    def __init__(self, url, key):
        self.host = urllib.parse.urlparse(url).netloc
        self.headers = {"Authorization": "Bearer " + key}

    def connect(self):
        return http.client.HTTPConnection(self.host, timeout=120)

    def get(self, path):
        connection = self.connect()
        try:
            connection.request("GET", path, headers=self.headers)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def metrics(self):
        lines = [line.rsplit(" ", 1) for line in self.get("/metrics").splitlines()]
        return {line[0]: float(line[1]) for line in lines if not line[0].startswith("#")}


def read_stream(response, leave_after):
    """The text and finish reason of a stream; None if we leave early."""
    text, reason, done = "", None, False
    for count, line in enumerate(response):
        if leave_after is not None and count >= leave_after:
            return None
        if not line.startswith(b"data: "):
            continue
        if line.strip() == b"data: [DONE]":
            done = True
            continue
        event = json.loads(line[6:])
        if "error" in event:
            return TOLD, event["error"]
        text += event["choices"][0]["text"]
        reason = event["choices"][0]["finish_reason"] or reason
    if not done:
        raise Problem("a stream ended without [DONE] and without an error")
    return ANSWERED, (text, reason)


def read_whole(response, body):
    length = response.getheader("Content-Length")
    if length is not None and len(body) != int(length):
        raise Problem("a body is shorter than its Content-Length")
    try:
        answer = json.loads(body)
    except ValueError:
        raise Problem(f"status {response.status} with a body that is not JSON: {body[:80]}")
    if response.status == 200:
        choice = answer["choices"][0]
        return ANSWERED, (choice["text"], choice["finish_reason"])
    return TOLD, answer["error"]


def send(server, request, stream, patience=None, leave_after=None):
    """One request: (what became of it, details). Hangs up after `patience` seconds of waiting or
    `leave_after` lines of a stream."""
    connection = server.connect()
    try:
        body = json.dumps({**request, "stream": stream})
        connection.request("POST", "/v1/completions", body, server.headers)
        if patience is not None:
            connection.sock.settimeout(patience)
        response = connection.getresponse()
        if response.status == 429:
            response.read()
            return REFUSED, int(response.getheader("Retry-After"))
        if stream and response.status == 200:
            return read_stream(response, leave_after) or (ABANDONED, None)
        return read_whole(response, response.read())
    except TimeoutError:
        if patience is None:
            raise Problem("no answer in two minutes")
        return ABANDONED, None
    except http.client.IncompleteRead:
        raise Problem("an answer was cut off")
    except (ConnectionError, http.client.RemoteDisconnected):
        return CLOSED, None
    finally:
        connection.close()


class Load:
    def __init__(self, server, requests, alone, until):
        self.server, self.requests, self.alone, self.until = server, requests, alone, until
        self.ending = threading.Event()  # we told the server to end
        self.lock = threading.Lock()
        self.outcomes = collections.Counter()
        self.problems = []
        self.sent = 0

    def client(self, seed):
        rng = random.Random(seed)
        while time.monotonic() < self.until:
            index = rng.randrange(len(self.requests))
            manner = {"stream": rng.random() < 0.5}
            if rng.random() < 0.1:
                manner["patience"] = rng.uniform(0.05, 2.0)
            elif manner["stream"] and rng.random() < 0.2:
                manner["leave_after"] = rng.randrange(6)
            with self.lock:
                self.sent += 1
            outcome, details = self.attempt(index, manner)
            with self.lock:
                self.outcomes[outcome] += 1
            if outcome == REFUSED:
                time.sleep(min(details, max(0.0, self.until - time.monotonic())))
            if outcome in (TOLD, CLOSED):
                if not self.ending.is_set():
                    self.report(f"{outcome} without reason: {details}")
                return

    def attempt(self, index, manner):
        try:
            outcome, details = send(self.server, self.requests[index], **manner)
        except Exception as error:  # whatever it is, it must not end the client unseen
            self.report(f"{type(error).__name__}: {error} ({manner})")
            return "failed", None
        if outcome == ANSWERED and details != self.alone[index]:
            self.report(f"another answer than alone: {details} instead of {self.alone[index]}")
        return outcome, details

    def report(self, problem):
        with self.lock:
            self.problems.append(problem)


def watch(server, load, queue_limit, samples):
    """Samples the gauges while the load runs."""
    while time.monotonic() < load.until and not load.ending.is_set():
        try:
            values = server.metrics()
        except OSError:
            return
        samples.append(values)
        if values["dlm_requests_queued"] > queue_limit:
            load.report(f"{values['dlm_requests_queued']:.0f} requests wait in the queue")
        time.sleep(0.5)


def check_rest(server, load):
    """Nothing runs and nothing waits once everybody is gone."""
    for _ in range(100):
        values = server.metrics()
        running, queued = values["dlm_requests_running"], values["dlm_requests_queued"]
        if running == queued == 0:
            return
        time.sleep(0.1)
    load.report(f"at the end {running:.0f} requests run and {queued:.0f} wait")


def check_memory(samples, load, slack_bytes):
    resident = [s["dlm_memory_resident_bytes"] for s in samples]
    quarter = max(resident[: len(resident) // 4 + 1])
    print(f"resident memory: {quarter / 2**20:.1f} MiB in the first quarter, "
          f"{resident[-1] / 2**20:.1f} MiB at the end")
    if resident[-1] > quarter + slack_bytes:
        load.report("resident memory grew")


def wait_for_exit(pid, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "Z":  # ended, not yet collected
                    return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--key", default="")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--slack-mib", type=float, default=16, help="growth of memory to allow")
    parser.add_argument("--term", type=int, metavar="PID", help="tell this server to end half-way")
    parser.add_argument("--grace", type=float, default=10, help="the server's --grace")
    args = parser.parse_args()

    server = Server(args.url, args.key)
    queue_limit = json.loads(server.get("/props"))["limits"]["queue"]
    requests = list(distinct_requests())
    alone = []
    for request in requests:
        outcome, details = send(server, request, stream=False)
        if outcome != ANSWERED:
            sys.exit(f"the server does not answer: {outcome} {details}")
        alone.append(details)

    start = time.monotonic()
    load = Load(server, requests, alone, until=start + args.seconds)
    samples = []
    threads = [threading.Thread(target=load.client, args=(i,)) for i in range(args.clients)]
    threads.append(threading.Thread(target=watch, args=(server, load, queue_limit, samples)))
    for thread in threads:
        thread.start()
    if args.term:
        time.sleep(args.seconds / 2)
        load.ending.set()
        os.kill(args.term, signal.SIGTERM)
        told = time.monotonic()
        if not wait_for_exit(args.term, args.grace + 8):
            load.report(f"the server still runs {args.grace + 8:.0f} s after SIGTERM")
        print(f"the server ended {time.monotonic() - told:.1f} s after SIGTERM")
    for thread in threads:
        thread.join()

    if not args.term:
        check_rest(server, load)
        check_memory(samples, load, args.slack_mib * 2**20)
    if sum(load.outcomes.values()) != load.sent:
        load.report(f"{load.sent} requests were sent, {sum(load.outcomes.values())} ended")
    print(f"{args.clients} clients, {load.sent} requests: "
          + ", ".join(f"{count} {name}" for name, count in sorted(load.outcomes.items())))
    for problem, count in collections.Counter(load.problems).most_common(20):
        print(f"PROBLEM ({count} x): {problem}")
    sys.exit(1 if load.problems else 0)


if __name__ == "__main__":
    main()
