"""The server as OpenAI's Python package sees it.

Starts nothing: SPA_URL is a server of the embedded model, SPA_SMALL_URL one that runs a single
answer and lets a single one wait, SPA_KEY the key of both.
scripts/check_clients.sh sets them up.
"""
import functools
import http.client
import json
import os
import socket
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import openai

URL = os.environ["SPA_URL"]
SMALL_URL = os.environ["SPA_SMALL_URL"]
KEY = os.environ["SPA_KEY"]
MODEL = "minillada"
QUESTION = "False or not ( True ) is"
MASK = "<|mdm_mask|>"
# Takes far longer than any test waits: it must be cancelled.
SLOW = {"max_tokens": 768, "extra_body": {"block_length": 768, "cache": "none"}}


def connect(url=URL, key=KEY, **options):
    return openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=60, **options)


client = connect()


def ask(content=QUESTION, **options):
    options.setdefault("max_tokens", 64)
    messages = [{"role": "user", "content": content}]
    return client.chat.completions.create(model=MODEL, messages=messages, **options)


def text_of(answer):
    return answer.choices[0].message.content


@functools.cache
def plain():
    """The answer to the question as it is; asked once, since answers repeat."""
    return ask()


def complete(prompt=QUESTION, **options):
    options.setdefault("max_tokens", 32)
    return client.completions.create(model=MODEL, prompt=prompt, **options)


def joined(chunks):
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def post_raw(body, url=URL, path="/v1/completions", content_type="application/json"):
    """Sends bytes the package would not; returns the status and the error object."""
    headers = {"Authorization": "Bearer " + KEY, "Content-Type": content_type}
    request = urllib.request.Request(url + path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, None
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


def metric(name, url=URL):
    request = urllib.request.Request(url + "/metrics", headers={"Authorization": "Bearer " + KEY})
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"dlm_{name} "):
                return float(line.split()[1])
    raise KeyError(name)


def wait_for(condition, seconds=15):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


class Answers(unittest.TestCase):
    def test_chat(self):
        answer = plain()
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.model, MODEL)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertTrue(text_of(answer).endswith("Answer: False"), text_of(answer))
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertLess(abs(answer.created - time.time()), 600)

    def test_content_as_parts(self):
        parts = [{"type": "text", "text": QUESTION[:9]}, {"type": "text", "text": QUESTION[9:]}]
        self.assertEqual(text_of(ask(parts)), text_of(plain()))

    def test_other_parts_are_refused(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            ask([{"type": "image_url", "image_url": {"url": "data:,"}}])
        self.assertEqual(caught.exception.param, "messages")

    def test_last_assistant_message_is_continued(self):
        begun = text_of(plain()).split(" =>")[0]
        messages = [
            {"role": "user", "content": QUESTION},
            {"role": "assistant", "content": begun},
        ]
        answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=64)
        self.assertTrue(text_of(answer).startswith(" =>"), text_of(answer))
        self.assertGreater(answer.usage.prompt_tokens, plain().usage.prompt_tokens)

    def test_completion_of_a_string(self):
        answer = complete()
        self.assertEqual(answer.object, "text_completion")
        self.assertIsInstance(answer.choices[0].text, str)

    def test_completion_of_strings(self):
        prompts = [QUESTION, "True and False is", "not ( True ) is"]
        together = complete(prompts)
        self.assertEqual([c.index for c in together.choices], [0, 1, 2])
        alone = [complete(p) for p in prompts]
        self.assertEqual([c.text for c in together.choices], [a.choices[0].text for a in alone])
        self.assertEqual(
            together.usage.completion_tokens, sum(a.usage.completion_tokens for a in alone)
        )
        self.assertEqual(together.usage.prompt_tokens, sum(a.usage.prompt_tokens for a in alone))

    def test_completion_of_token_ids(self):
        first, second = [40, 41, 42, 43], [44, 45]
        alone = [complete(first), complete(second)]
        self.assertEqual(alone[0].usage.prompt_tokens, len(first))
        together = complete([first, second])
        self.assertEqual([c.index for c in together.choices], [0, 1])
        self.assertEqual([c.text for c in together.choices], [a.choices[0].text for a in alone])

    def test_mask_text_is_text(self):
        for send in (ask, complete):
            without, masked = send("is"), send("is" + MASK)
            # As text it is several tokens; the mask token would be one.
            self.assertGreater(masked.usage.prompt_tokens, without.usage.prompt_tokens + 1)
        self.assertNotIn(MASK, text_of(ask(MASK + " " + QUESTION)))

    def test_unicode(self):
        answer = ask("caf\u00e9 \u6f22\u5b57 \U0001f600 is", max_tokens=32)
        text_of(answer).encode()  # whole characters only

    def test_max_tokens(self):
        for field, most in (("max_tokens", 1), ("max_tokens", 3), ("max_completion_tokens", 5)):
            answer = client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": QUESTION}], **{field: most}
            )
            self.assertEqual(answer.usage.completion_tokens, most)
            self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertLess(plain().usage.completion_tokens, 64)

    def test_several_answers(self):
        answer = ask(n=2, temperature=1.5, seed=7)
        self.assertEqual([c.index for c in answer.choices], [0, 1])
        again = ask(n=2, temperature=1.5, seed=7)
        self.assertEqual(
            [c.message.content for c in answer.choices], [c.message.content for c in again.choices]
        )
        self.assertEqual(answer.usage.prompt_tokens, plain().usage.prompt_tokens)

    def test_seed(self):
        def sample(seed):
            return text_of(ask(temperature=3.0, seed=seed))

        self.assertEqual(sample(5), sample(5))
        self.assertGreater(len({sample(seed) for seed in (-1, 0, 1, 2)}), 1)

    def test_seed_and_temperature_0_are_accepted(self):
        self.assertEqual(text_of(ask(seed=1234, temperature=0)), text_of(plain()))

    def test_neutral_and_informative_fields_are_accepted(self):
        answer = ask(
            frequency_penalty=0, presence_penalty=0, logprobs=False, user="someone", top_p=1, n=1
        )
        self.assertEqual(text_of(answer), text_of(plain()))

    def test_diffusion_fields(self):
        answer = ask(
            extra_body={
                "cache": "spa",
                "cache_options": {"rho": 0.5},
                "steps": 16,
                "block_length": 16,
                "threshold": 0.9,
                "remasking": "low_confidence",
            }
        )
        stats = answer.dlm["stats"][0]
        self.assertIn("rho=0.5", stats["cache"])
        self.assertLessEqual(stats["steps"], 16)
        self.assertEqual(stats["canvas_tokens"], 64)
        self.assertEqual(ask(extra_body={"cache": "none"}).dlm["stats"][0]["cache"], "none")


class Streams(unittest.TestCase):
    def test_stream_equals_the_whole_answer(self):
        whole = plain()
        chunks = list(ask(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(joined(chunks), text_of(whole))
        self.assertEqual(len({c.id for c in chunks}), 1)
        self.assertEqual(len({c.created for c in chunks}), 1)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
        self.assertEqual(reasons, [None] * (len(reasons) - 1) + ["stop"])
        self.assertEqual([c.usage for c in chunks[:-1]], [None] * (len(chunks) - 1))
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage, whole.usage)

    def test_no_usage_unless_asked(self):
        self.assertTrue(all(c.usage is None and c.choices for c in ask(stream=True)))

    def test_completion_stream(self):
        prompts = [QUESTION, "True and False is"]
        texts = ["", ""]
        for chunk in complete(prompts, stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].text
        self.assertEqual(texts, [c.text for c in complete(prompts).choices])

    def test_stops_in_streams(self):
        for stop in ("e or", "Answer"):
            with self.subTest(stop=stop):
                self.assertEqual(joined(ask(stop=stop, stream=True)), text_of(ask(stop=stop)))

    def test_diffusion_frames(self):
        chunks = list(ask(stream=True, extra_body={"stream_diffusion": True}))
        self.assertEqual(joined(chunks), text_of(plain()))
        frames = [c.dlm["frame"] for c in chunks if "frame" in (getattr(c, "dlm", None) or {})]
        self.assertGreater(len(frames), 1)
        self.assertEqual([f["step"] for f in frames], sorted(f["step"] for f in frames))
        self.assertTrue(all(len(f["tokens"]) == 64 for f in frames))


class Stops(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = text_of(plain())

    def cut(self, stops):
        return self.text[: min(self.text.find(s) for s in stops if s in self.text)]

    def test_string_and_list(self):
        for stop in ("True", ["True"], ["never said", "Answer", "True"]):
            with self.subTest(stop=stop):
                answer = ask(stop=stop)
                stops = [stop] if isinstance(stop, str) else stop
                self.assertEqual(text_of(answer), self.cut(stops))
                self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_across_token_borders(self):
        for begin in (3, 8, 13, len(self.text) - 9):
            stop = self.text[begin : begin + 6]
            with self.subTest(stop=stop):
                self.assertEqual(text_of(ask(stop=stop)), self.cut([stop]))

    def test_a_stop_that_never_comes_changes_nothing(self):
        self.assertEqual(text_of(ask(stop=[self.text[-5:] + "x", "never said"])), self.text)

    def test_sixteen_are_taken(self):
        stops = [f"stop {i}" for i in range(15)] + ["Answer"]
        self.assertEqual(text_of(ask(stop=stops)), self.cut(stops))


class Refusals(unittest.TestCase):
    def refused(self, param, **options):
        with self.assertRaises(openai.BadRequestError) as caught:
            ask(**options)
        self.assertEqual(caught.exception.param, param)
        self.assertEqual(caught.exception.type, "invalid_request_error")
        return caught.exception

    def test_unknown_field(self):
        self.refused("block_lenght", extra_body={"block_lenght": 8})

    def test_what_we_cannot_do(self):
        self.refused("logprobs", logprobs=True)
        self.refused("frequency_penalty", frequency_penalty=1.0)
        self.refused("logit_bias", logit_bias={"5": 10})
        function = {"name": "f", "parameters": {"type": "object", "properties": {}}}
        self.refused("tools", tools=[{"type": "function", "function": function}])
        self.refused("response_format", response_format={"type": "json_object"})
        with self.assertRaises(openai.BadRequestError) as caught:
            complete(logprobs=1, echo=True)
        self.assertIn(caught.exception.param, ("logprobs", "echo"))

    def test_too_many_stops(self):
        self.refused("stop", stop=[str(i) for i in range(17)])

    def test_values_out_of_range(self):
        self.refused("temperature", temperature=-1)
        self.refused("top_p", top_p=1.5)
        self.refused("max_tokens", max_tokens=0)
        self.refused("n", n=0)
        self.refused("seed", seed=1.5)
        self.refused("steps", extra_body={"steps": 0})
        self.refused("block_length", extra_body={"block_length": 0})
        self.refused("threshold", extra_body={"threshold": 2})
        self.refused("cache", extra_body={"cache": "no such cache"})

    def test_a_bad_choice_is_named(self):
        self.refused("cache_options", extra_body={"cache_options": {"no such option": 1}})
        self.refused("remasking", extra_body={"remasking": "no such order"})
        self.refused("eos", extra_body={"eos": "no such rule"})

    def test_numbers_that_are_none(self):
        for number in (b"NaN", b"Infinity", b"1e999", b'"0.5"'):
            with self.subTest(number=number):
                status, error = post_raw(b'{"prompt": "a", "temperature": ' + number + b"}")
                self.assertEqual(status, 400)
                self.assertTrue(error["message"])

    def test_over_long_prompt(self):
        error = self.refused("messages", content="True and " * 3000)
        self.assertEqual(error.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError) as caught:
            complete([40] * 2000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_ids_that_are_none(self):
        for prompt in ([-1], [10**9], [1, "a"], [[1], "a", [[2]]], []):
            with self.subTest(prompt=prompt):
                with self.assertRaises(openai.BadRequestError) as caught:
                    complete(prompt)
                self.assertEqual(caught.exception.param, "prompt")

    def test_mask_id(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            complete(list(range(10**5)))  # ids are read in order: the mask comes first
        self.assertIn("mask", caught.exception.message)

    def test_unknown_role(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(
                model=MODEL, messages=[{"role": "oracle", "content": "a"}]
            )
        self.assertEqual(caught.exception.param, "messages")

    def test_unknown_model(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            client.completions.create(model="another", prompt="a")
        self.assertEqual(caught.exception.code, "model_not_found")

    def test_a_stream_is_refused_like_any_request(self):
        self.refused("logprobs", logprobs=True, stream=True)
        self.refused("cache_options", stream=True, extra_body={"cache_options": {"bogus": 1}})

    def test_errors_have_a_request_id(self):
        self.assertTrue(self.refused("n", n=0).request_id)


class Keys(unittest.TestCase):
    def test_wrong_key(self):
        for key in ("wrong", KEY + "x", KEY[1:] + KEY[:1]):
            with self.assertRaises(openai.AuthenticationError) as caught:
                connect(key=key).models.list()
            self.assertEqual(caught.exception.code, "invalid_api_key")

    def test_every_route_but_health_needs_it(self):
        for path, status in (("/health", 200), ("/metrics", 401), ("/props", 401)):
            host = urllib.parse.urlparse(URL).netloc
            connection = http.client.HTTPConnection(host, timeout=60)
            connection.request("GET", path)
            self.assertEqual(connection.getresponse().status, status)
            connection.close()


class Wire(unittest.TestCase):
    """What the package never sends."""

    def test_a_refused_body_is_not_read_as_a_request(self):
        connection = http.client.HTTPConnection(urllib.parse.urlparse(URL).netloc, timeout=60)
        body = json.dumps({"prompt": "a", "max_tokens": 4, "block_length": 4})
        for key, status in (("wrong", 401), (KEY, 200)):
            headers = {"Authorization": "Bearer " + key}
            connection.request("POST", "/v1/completions", body, headers)
            answer = connection.getresponse()
            answer.read()
            self.assertEqual(answer.status, status)
        connection.close()

    def test_http_1_0_gets_a_stream_without_chunks(self):
        where = urllib.parse.urlparse(URL)
        body = json.dumps({"prompt": "not ( True ) is", "max_tokens": 8, "block_length": 8, "stream": True})
        with socket.create_connection((where.hostname, where.port), timeout=60) as wire:
            wire.sendall((f"POST /v1/completions HTTP/1.0\r\nAuthorization: Bearer {KEY}\r\n"
                          f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
            answer = b""
            while piece := wire.recv(65536):  # until the server closes
                answer += piece
        head, events = answer.decode().split("\r\n\r\n", 1)
        self.assertIn(" 200 ", head)
        self.assertNotIn("chunked", head.lower())
        self.assertTrue(events.startswith("data: {"))
        self.assertTrue(events.endswith("data: [DONE]\n\n"))

    def test_a_broken_request_ends_the_connection(self):
        host, port = urllib.parse.urlparse(URL).netloc.split(":")
        for request in (
            b"nonsense\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nContent-Length: nonsense\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        ):
            with self.subTest(request=request), socket.create_connection((host, port), 5) as sender:
                sender.sendall(request + b"GET /health HTTP/1.1\r\n\r\n")
                answer = b""
                while received := sender.recv(4096):
                    answer += received
                self.assertEqual(answer.count(b"HTTP/1.1"), 1)

    def test_deep_nesting(self):
        deep = b"[" * 10**5 + b"]" * 10**5
        messages = b'{"messages": [{"role": "user", "content": [{"type": ' + deep + b"}]}]}"
        for path, body in (
            ("/v1/completions", b'{"prompt": ' + deep + b"}"),
            ("/v1/completions", b'{"prompt": "a", "stop": ' + deep + b"}"),
            ("/v1/chat/completions", b'{"messages": [{"role": ' + deep + b"}]}"),
            ("/v1/chat/completions", messages),
        ):
            status, _ = post_raw(body, SMALL_URL, path)
            self.assertEqual(status, 400)

    def test_long_bodies_of_any_type(self):
        # What curl sends with -d and no header.
        body = json.dumps({"prompt": "a", "max_tokens": 4, "user": "a" * 9000}).encode()
        for content_type in ("application/json", "application/x-www-form-urlencoded"):
            self.assertEqual(post_raw(body, content_type=content_type)[0], 200)

    def test_bad_utf8(self):
        self.assertEqual(post_raw(b'{"prompt": "\xff"}')[0], 400)

    def test_a_large_body(self):
        self.assertEqual(post_raw(b" " * (9 << 20))[0], 413)

    def test_files_of_the_server_are_out_of_reach(self):
        body = {"prompt": "a", "cache": "spa", "cache_options": {"profile": "/dev/null"}}
        self.assertEqual(post_raw(json.dumps(body).encode())[0], 400)
        _, error = post_raw(json.dumps(body).replace("/dev/null", "/none").encode())
        # Whether a file exists must not be told.
        self.assertNotIn("cannot open", error["message"])


class Models(unittest.TestCase):
    def test_list(self):
        models = client.models.list()
        self.assertEqual([m.id for m in models], [MODEL])

    def test_retrieve(self):
        self.assertEqual(client.models.retrieve(MODEL).object, "model")
        with self.assertRaises(openai.NotFoundError):
            client.models.retrieve("another")


class Load(unittest.TestCase):
    def test_cancelled_streams_free_their_place(self):
        before = metric("requests_cancelled_total")
        stream = ask(stream=True, **SLOW)
        next(stream)
        self.assertEqual(metric("requests_running"), 1)
        stream.close()
        self.assertTrue(wait_for(lambda: metric("requests_running") == 0))
        self.assertEqual(metric("requests_cancelled_total"), before + 1)

    def test_abandoned_answers_free_their_place(self):
        before = metric("requests_cancelled_total")
        with self.assertRaises(openai.APITimeoutError):
            ask(timeout=1, **SLOW)
        self.assertTrue(wait_for(lambda: metric("requests_running") == 0))
        self.assertEqual(metric("requests_cancelled_total"), before + 1)

    def test_nothing_runs_after_an_answer(self):
        ask()
        self.assertTrue(wait_for(lambda: metric("requests_running") == 0, 3))

    def test_full_queue(self):
        small = connect(SMALL_URL)
        messages = [{"role": "user", "content": QUESTION}]

        def start():
            return small.chat.completions.create(
                model=MODEL, messages=messages, stream=True, **SLOW
            )

        running = start()
        next(running)
        # A stream begins when its turn comes, so the one that waits is sent by hand.
        waiting = http.client.HTTPConnection(urllib.parse.urlparse(SMALL_URL).netloc, timeout=60)
        body = {"prompt": QUESTION, "max_tokens": 768, "block_length": 768}
        headers = {"Authorization": "Bearer " + KEY}
        waiting.request("POST", "/v1/completions", json.dumps(body), headers)
        self.assertTrue(wait_for(lambda: metric("requests_queued", SMALL_URL) == 1))
        with self.assertRaises(openai.RateLimitError) as caught:
            start()
        seconds = int(caught.exception.response.headers["retry-after"])
        self.assertTrue(1 <= seconds <= 60)
        waiting.close()
        self.assertTrue(wait_for(lambda: metric("requests_queued", SMALL_URL) == 0))
        running.close()
        self.assertTrue(wait_for(lambda: metric("requests_running", SMALL_URL) == 0))

    def test_more_answers_than_the_queue_holds(self):
        with self.assertRaises(openai.BadRequestError):  # waiting would not help
            connect(SMALL_URL).completions.create(model=MODEL, prompt="a", n=3)


if __name__ == "__main__":
    unittest.main()
