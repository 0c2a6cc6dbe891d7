#!/usr/bin/env python3
"""Whatever options a user combines, on the command line or over HTTP, spa answers or says what is wrong.

Draws random values of random decoding and cache options, for every cache in turn, from the tables that
`spa options` prints. Each draw goes to `spa generate` and to a running server: no crash, no internal error,
and both give the same text, or both refuse.
Usage: combinations_test.py path/to/spa MODEL... (SPA_DRAWS=2000 for more draws than the usual 60)
"""
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile

PROMPT = "To be"
SECONDS = 120  # a hang, not a slow machine


def value(option, draw):
    """A value from the option's range, its ends included; counts stay small, to be cheap."""
    kind = option["type"]
    if kind == "choice":
        return draw.choice(option["choices"])
    if kind == "flag":
        return draw.choice(["on", "off"])
    least = option["min"]
    if kind == "count":
        return draw.randint(int(least), int(min(option["max"], least + 12)))
    most = min(option["max"], least + 4)
    return draw.choice([least, most] + [draw.uniform(least, most)] * 6)


def combination(table, number):
    """Decoding options, a cache and its options, as {name: value}; most options are left alone."""
    draw = random.Random(number)
    cache = table["caches"][number % len(table["caches"])]
    decode = {option["name"]: value(option, draw) for option in table["decode"] if draw.random() < 0.06}
    # Where the server is meant to differ: it rounds the canvas up to whole blocks, draws a seed if none is
    # given, and takes top_p and top_k for greedy decoding.
    decode["gen-length"] = draw.choice([4, 8, 12])
    decode["block-length"] = draw.choice([2, 4, decode["gen-length"]])
    decode.setdefault("seed", 1)
    if not decode.get("temperature"):
        decode.pop("top-p", None), decode.pop("top-k", None)
    options = {option["name"]: value(option, draw) for option in cache["options"]
               if option["type"] != "text" and draw.random() < 0.4}
    return decode, cache["name"], options


def on_command_line(spa, model, decode, cache, options):
    """The answer, or None if spa refuses."""
    command = [spa, "generate", "-m", model, "-t", "1", "--raw", "-p", PROMPT, "--json", "--cache", cache]
    command += [f"--{name}={setting}" for name, setting in decode.items()]
    for name, setting in options.items():
        command += ["--cache-opt", f"{name}={setting}"]
    result = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    if result.returncode == 0:
        return json.loads(result.stdout)["text"]
    said = result.stderr.decode()
    if result.returncode != 1 or not said.startswith("spa: ") or "internal error" in said:
        raise AssertionError(f"exit code {result.returncode}: {said}")
    return None


class Server:
    def __init__(self, spa, model, folder):
        with open(os.path.join(folder, "log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([spa, "serve", "-m", model, "-t", "1", "--port", "0"],
                                            stdout=subprocess.PIPE, stderr=log, text=True)
        self.port = int(re.search(r"http://127\.0\.0\.1:(\d+)", self.process.stdout.readline())[1])

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())

    def answer(self, decode, cache, options):
        """As on_command_line."""
        body = {name.replace("-", "_"): {"on": True, "off": False}.get(setting, setting)
                if name not in ("early-stop", "slide") else setting for name, setting in decode.items()}
        body |= {"prompt": PROMPT, "max_tokens": body.pop("gen_length"), "cache": cache, "cache_options": options}
        status, answer = self.request("POST", "/v1/completions", json.dumps(body))
        if status == 200:
            return answer["choices"][0]["text"]
        if status not in (400, 413):
            raise AssertionError(f"status {status}: {answer}")
        return None

    def stop(self):
        """It still answers, and ends in peace."""
        status, _ = self.request("GET", "/health")
        self.process.terminate()
        if status != 200 or self.process.wait(SECONDS) != 0:
            raise AssertionError(f"health {status}, exit code {self.process.returncode}")


def main():
    spa, models = sys.argv[1], sys.argv[2:]
    draws = int(os.environ.get("SPA_DRAWS", "60"))
    table = json.loads(subprocess.run([spa, "options", "--json"], capture_output=True, check=True).stdout)
    answered = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for first, model in enumerate(models):
            server = Server(spa, model, folder)
            try:
                for number in range(first, draws, len(models)):
                    drawn = combination(table, number // len(models))
                    try:
                        told, served = on_command_line(spa, model, *drawn), server.answer(*drawn)
                        if told != served:
                            raise AssertionError(f"generate says {told!r}, the server {served!r}")
                        answered += told is not None
                    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
                        failed += 1
                        print(f"FAILED {os.path.basename(model)} {drawn}: {error}")
                server.stop()
            finally:
                server.process.kill()
    print(f"{draws} combinations, {answered} answered, {failed} failed")
    sys.exit(failed > 0 or answered * 4 < draws)


main()
