"""spa.Model does what the program does."""

import os
import pickle
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import QUESTIONS, ROOT, same

import spa

CACHES = [cache["name"] for cache in spa.options()["caches"]]


@pytest.mark.parametrize("cache", CACHES)
def test_every_cache_gives_the_tokens_of_the_program(model, generate, cache):
    blocks = cache == "block"  # it needs attention in blocks
    mine = model.generate(QUESTIONS[0], cache=cache, gen_length=32, block_attention=blocks)
    flags = ["--block-attention", "on" if blocks else "off"]
    theirs = generate(QUESTIONS[0], "--cache", cache, "-n", "32", *flags)
    assert same(mine.ids, theirs["ids"])
    assert mine.text == theirs["text"]
    assert (mine.steps, mine.rows_computed, mine.rows_total) == (
        theirs["steps"],
        theirs["rows_computed"],
        theirs["rows_total"],
    )
    assert mine.cache == theirs["cache"]


# For each decoding option a use of it, with those it needs.
USES = {
    "gen-length": {"gen_length": 24},
    "grow-to": {"gen_length": 16, "grow_to": 48},
    "block-length": {"block_length": 8},
    "steps": {"block_length": 16, "steps": 16},
    "steps-per-block": {"block_length": 8, "steps_per_block": 4},
    "sub-block-length": {"block_length": 16, "sub_block_length": 4},
    "block-attention": {"block_attention": True},
    "slide": {"block_length": 8, "slide": "greedy"},
    "window": {"block_length": 8, "window": 8},
    "window-scale": {"block_length": 8, "window": 16, "window_scale": 2},
    "window-sigma": {"block_length": 8, "window": 16, "window_scale": 2, "window_sigma": 2},
    "remasking": {"remasking": "random"},
    "temperature": {"temperature": 0.7},
    "top-p": {"temperature": 0.9, "top_p": 0.7},
    "top-k": {"temperature": 0.9, "top_k": 3},
    "alg-temp": {"remasking": "entropy", "alg_temp": 0.5},
    "eps": {"remasking": "origin", "eps": 0.01},
    "cfg-scale": {"cfg_scale": 0.5},
    "threshold": {"threshold": 0.9},
    "first-threshold": {"block_length": 1, "first_threshold": 0.9},
    "factor": {"factor": 1},
    "entropy-bound": {"entropy_bound": 0.2},
    "hierarchical": {"hierarchical": 0.6},
    "klass": {"threshold": 0.9, "klass": 0.01},
    "loosen": {"threshold": 0.9, "loosen": 0.2},
    "credit": {"threshold": 0.9, "credit": 0.5},
    "credit-decay": {"threshold": 0.9, "credit": 0.5, "credit_decay": 0.5},
    "credit-power": {"threshold": 0.9, "credit": 0.5, "credit_power": 0.5},
    "wino": {"threshold": 0.5, "wino": 0.9},
    "saber": {"saber": 2},
    "prophet": {"prophet": True},
    "edit-threshold": {"threshold": 0.5, "edit_threshold": 0.5},
    "max-post-steps": {"threshold": 0.5, "edit_threshold": 0.5, "max_post_steps": 2},
    "eos": {"eos": "last"},
    "early-stop": {"early_stop": False},
    "exact": {"exact": True},
    "grow": {"grow": 0},
    "seed": {"temperature": 0.7, "seed": 18446744073709551615},
}
QUICK = {"threshold", "steps", "cfg-scale", "block-attention", "early-stop", "seed"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(o["name"], marks=[] if o["name"] in QUICK else pytest.mark.slow)
        for o in spa.options()["decode"]
    ],
)
def test_every_option_means_the_same(model, generate, name):
    options = {"gen_length": 32, **USES[name]}
    flags = ["--cache", "none"]
    for option, value in options.items():
        value = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
        flags += ["--" + option.replace("_", "-"), str(value)]
    if name in ("top-p", "top-k", "eps"):  # Dream's
        path = ROOT / "tests/data/tiny-dream-F32.gguf"
        model, flags = spa.Model(path, threads=1), [*flags, "--raw", "-m", str(path)]
    raw = "--raw" in flags
    if name == "grow":  # a text without gaps: both refuse it
        with pytest.raises(spa.Error, match="--grow is for a text with gaps"):
            model.generate(QUESTIONS[1], **options)
        with pytest.raises(AssertionError, match="--grow is for a text with gaps"):
            generate(QUESTIONS[1], *flags)
        return
    mine = model.generate(QUESTIONS[1], cache="none", raw=raw, **options)
    theirs = generate(QUESTIONS[1], *flags)
    assert same(mine.ids, theirs["ids"]) and mine.text == theirs["text"]
    assert mine.steps == theirs["steps"]


def test_cache_options(model, generate):
    theirs = generate(QUESTIONS[0], "--cache", "spa", "--cache-opt", "rank=8")
    for mine in (
        model.generate(QUESTIONS[0], cache="spa:rank=8"),
        model.generate(QUESTIONS[0], cache="spa", cache_options={"rank": 8}),
    ):
        assert same(mine.ids, theirs["ids"]) and mine.cache == theirs["cache"]


def test_a_batch_equals_one_after_the_other(model):
    alone = [model.generate(question) for question in QUESTIONS]
    for batch in (1, 2, 8):
        together = model.generate(QUESTIONS, batch=batch)
        assert model.generate([], batch=batch) == []
        assert [r.text for r in together] == [r.text for r in alone]
        assert all(same(a.ids, b.ids) for a, b in zip(together, alone))


def test_answers_are_handed_out_as_they_are_there(model):
    given: dict = {}
    results = model.generate(QUESTIONS, batch=2, on_result=given.__setitem__)
    assert sorted(given) == [0, 1, 2] and all(given[n] is r for n, r in enumerate(results))
    given.clear()

    def enough(place, result):
        given[place] = result
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.generate(QUESTIONS, batch=1, on_result=enough)
    assert list(given) == [0] and given[0].text == results[0].text
    assert model.generate(QUESTIONS[1]).text == results[1].text


def test_stop_strings_end_the_answer(model):
    whole = model.generate(QUESTIONS[0])
    for batch in (1, 2):
        first, second = model.generate(QUESTIONS[:2], stop=["Answer", "nowhere"], batch=batch)
        assert first.text == whole.text[: whole.text.index("Answer")] and first.ended
        assert first.steps < whole.steps
        assert "Answer" not in second.text
    assert model.generate(QUESTIONS[0], stop="nowhere").text == whole.text
    for stop in ("Answer", ["nowhere", "nswer: T"], "=", "nowhere"):
        pieces = list(model.stream(QUESTIONS[0], stop=stop))
        assert "".join(pieces) == model.generate(QUESTIONS[0], stop=stop).text
        assert all(pieces)


def test_prompts(model):
    asked = model.generate(QUESTIONS[0])
    messages = [{"role": "user", "content": QUESTIONS[0]}]
    ids = model.encode(QUESTIONS[0])
    for prompt in (messages, ids, ids.tolist(), tuple(ids.tolist())):
        assert same(model.generate(prompt).ids, asked.ids)
    assert [r.text for r in model.generate([messages, ids.tolist()])] == [asked.text] * 2
    assert same(model.encode("True", raw=True), model.tokenize("True"))
    assert model.detokenize(model.tokenize("not ( True )")) == "not ( True )"


def test_logits_are_those_of_the_program_and_not_copied(model, program, tmp_path):
    ids = model.encode(QUESTIONS[0])
    logits = model.logits(ids)
    assert logits.shape == (len(ids), model.vocab_size) and logits.dtype == np.float32
    assert not logits.flags.owndata  # the engine's memory, handed over
    out = tmp_path / "logits"
    program("logits", "--ids", "-", "--out", str(out), text=" ".join(map(str, ids)))
    assert out.read_bytes() == logits.tobytes()
    again = model.logits(ids)
    logits[:] = 0
    assert same(again, np.frombuffer(out.read_bytes(), np.float32).reshape(again.shape))


def test_steps(model):
    frames = list(model.steps(QUESTIONS[0], gen_length=32))
    result = model.generate(QUESTIONS[0], gen_length=32)
    assert [f.step for f in frames] == list(range(1, result.steps + 1))
    assert same(frames[-1].ids, result.ids) and frames[-1].settled.all() and frames[-1].ended
    assert frames[-1].text == result.text
    assert same([[len(layer) for layer in f.rows] for f in frames], result.rows)
    for before, after in zip(frames, frames[1:]):
        assert (after.settled >= before.settled).all()
        assert same(after.ids[before.settled], before.ids[before.settled])
        assert (before.ids[~before.settled] == model.mask_id).all()
        seen = ~np.isnan(after.confidence)
        assert seen.any() and (after.confidence[seen] <= 1).all() and not before.settled[seen].any()
    for position, step in enumerate(result.settled_at):
        assert step == 0 or frames[step - 1].settled[position]
        assert step < 2 or not frames[step - 2].settled[position]
    settled = result.settled_at > 0
    assert ((result.confidence[settled] > 0) & (result.confidence[settled] <= 1)).all()


def test_a_canvas_that_grows(model):
    result = model.generate(QUESTIONS[0], gen_length=8, grow_to=64)
    assert len(result.ids) > 8
    assert len(result.settled_at) == len(result.confidence) == len(result.ids)
    assert (result.settled_at[: result.generated_tokens] > 0).all()
    assert result._repr_html_().count("<span") == len(result.ids)


def test_a_result_can_be_stored(model):
    result = model.generate(QUESTIONS[0])
    again = pickle.loads(pickle.dumps(result))
    assert again.text == result.text and same(again.rows, result.rows)
    assert again._repr_html_() == result._repr_html_()
    assert result == result and result != again  # no comparison of arrays


def test_half_a_character_is_replaced(model):
    asked = model.encode("a\ud800b")
    assert same(asked, model.encode("a\ufffdb"))


def test_stream(model):
    for question in QUESTIONS:
        pieces = list(model.stream(question))
        assert len(pieces) > 1 and "".join(pieces) == model.generate(question).text


def test_a_generation_may_be_left(model):
    frames = model.steps(QUESTIONS[0])
    next(frames)
    other = model.generate(QUESTIONS[1])  # while the first is not finished
    rest = list(frames)
    assert same(rest[-1].ids, model.generate(QUESTIONS[0]).ids)
    assert same(other.ids, model.generate(QUESTIONS[1]).ids)
    frames = model.steps(QUESTIONS[0])
    next(frames)
    frames.close()


def test_threads_share_a_model(model):
    expected = [model.generate(question) for question in QUESTIONS]
    found: list = []

    def ask():
        for _ in range(3):
            found.append([model.generate(question) for question in QUESTIONS])

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    for answers in found:
        assert all(same(a.ids, b.ids) for a, b in zip(answers, expected))


def test_the_gil_is_free_while_the_model_computes(model):
    """Another thread runs while one call computes: it counts, with the call still going on."""
    counted, done = [], threading.Event()

    def count():
        while not done.is_set():
            counted.append(1)
            done.wait(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = len(counted)
    model.logits(np.tile(model.encode(QUESTIONS[0]), 20)[: model.context_length])
    after = len(counted)
    done.set()
    thread.join()
    assert after > before


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda m: m.generate("x", gen_lenght=3), "did you mean 'gen-length'"),
        (lambda m: m.generate("x", threshold=2), "threshold"),
        (lambda m: m.generate("x", cache="spq"), "did you mean 'spa'"),
        (lambda m: m.generate("x", cache="spa:rnk=3"), "did you mean 'rank'"),
        (lambda m: m.generate(""), "the prompt is empty"),
        (lambda m: m.generate([-1]), "outside the vocabulary"),
        (lambda m: m.generate([2**40]), "outside the vocabulary"),
        (lambda m: m.generate([1.5, 2.0]), "a prompt must be"),
        (lambda m: m.generate([{"role": "user"}]), "'role' and 'content'"),
        (lambda m: m.generate([{"role": "king", "content": "x"}]), "king"),
        (lambda m: m.generate([{"role": "user", "content": None}]), "'content' must be a string"),
        (lambda m: m.generate([{"role": "user", "content": "x"}, "y"]), "'role' and 'content'"),
        (lambda m: m.steps("x", gen_lenght=3), "did you mean 'gen-length'"),  # before the first step
        (lambda m: m.stream("x", stop=["a", ""]), "a stop string must not be empty"),
        (lambda m: m.stream("x", stop=[3]), "a stop string must be a string"),
        (lambda m: m.generate("x", cache=3), "a name or a subclass of spa.CachePolicy, not 3"),
        (lambda m: m.generate("x", cache=int), "a subclass of spa.CachePolicy, not <class 'int'>"),
        (lambda m: m.generate("x", cache=spa.CachePolicy()), "pass the class, cache=CachePolicy"),
        (lambda m: m.loglikelihood("x", "y", draws=-1), "draws must be a whole number"),
        (lambda m: m.evaluate("x", limit=-1), "limit must be a whole number"),
        (lambda m: m.compare(["x"], caches=[spa.CachePolicy]), "spa.register"),
        (lambda m: spa.Model(threads=-1), "threads must be a whole number of at least 0, not -1"),
        (lambda m: spa.Model(threads="2"), "threads must be a whole number of at least 0, not '2'"),
        (lambda m: m.generate("x", gen_length=100000), "context"),
        (lambda m: m.generate(["x"], batch=0), "at least 1"),
        (lambda m: m.generate("x", stop=""), "a stop string must not be empty"),
        (lambda m: m.logits([]), "empty"),
        (lambda m: m.logits([10**6]), "outside the vocabulary"),
        (lambda m: m.detokenize([10**6]), "outside the vocabulary"),
        (lambda m: m.evaluate("nowhere.json"), "nowhere.json"),
        (lambda m: m.evaluate("x", cache=spa.CachePolicy), "spa.register"),
        (lambda m: m.compare(["x"], caches="spq"), "spq"),
        (lambda m: m.compare([]), "no prompts"),
        (lambda m: spa.Model("nowhere.gguf"), "nowhere.gguf"),
        (lambda m: spa.Model(kv="f8"), "f8"),
    ],
)
def test_errors_are_one_clear_line(model, call, words):
    with pytest.raises(spa.Error) as error:
        call(model)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_evaluate(model, program, tmp_path):
    import json

    data = tmp_path / "puzzles.jsonl"
    data.write_text(
        "".join(
            json.dumps({"question": q.text, "answer": q.expected}) + "\n"
            for q in spa._spa.built_in_questions()
        )
    )
    how = {"task": "jsonl", "extract": r"Answer: *([^\n]*)"}
    seen = []
    mine = model.evaluate(data, **how, samples=tmp_path / "s", progress=lambda *n: seen.append(n))
    flags = ["--task", "jsonl", "--extract", how["extract"], "--data", str(data), "--json"]
    theirs = json.loads(program("eval", *flags))
    assert mine.total.correct == theirs["total"]["correct"] > 0
    assert mine.total.rows_fraction == theirs["total"]["rows_fraction"]
    assert seen[-1][0] == mine.total.count == seen[-1][1]
    again = model.evaluate(data, **how, samples=tmp_path / "s")
    assert again.resumed == mine.total.count and again.accuracy == mine.accuracy
    assert mine.records()[0]["correct"] == mine.total.correct
    assert "puzzles" in repr(mine) and "<table>" in mine._repr_html_()
    assert f"{mine.total.correct} of {mine.total.count} correct" in repr(mine.total)


def test_exact_uses_no_cache(model):
    assert model.generate(QUESTIONS[0], exact=True).cache == "none"
    assert model.generate(QUESTIONS[0], exact=True, cache="none").cache == "none"
    for given in ({"cache": "spa"}, {"cache": spa.CachePolicy}, {"cache_options": {"rho": 0.5}}):
        with pytest.raises(spa.Error, match="exact decoding uses no cache"):
            model.generate(QUESTIONS[0], exact=True, **given)
        with pytest.raises(spa.Error, match="exact decoding uses no cache"):
            model.steps(QUESTIONS[0], exact=True, **given)
    with pytest.raises(spa.Error, match="exact decoding uses no cache"):
        model.evaluate("none.json", exact=True, cache="spa")
    with pytest.raises(spa.Error, match="nothing to compare"):
        model.compare(exact=True)


def test_compare(model):
    rows = model.compare(QUESTIONS, caches=["none", "spa"], parallel=0.9, gen_length=32)
    assert [row.cache for row in rows] == ["none", "spa"] * 3
    rules = ["plain", "block-length=16", "block-length=16:threshold=0.9"]
    assert rows[0].agreement == 1 and [row.rule for row in rows[::2]] == rules
    rows = model.compare(QUESTIONS, caches=["spa"], parallel=0.9, block_length=16)
    assert [row.rule for row in rows] == ["plain"] * 2 + ["threshold=0.9"] * 2
    assert [(r["cache"], r["speedup"]) for r in rows.records()] == [(r.cache, r.speedup) for r in rows]
    assert "agreement" in repr(rows) and "<table>" in rows._repr_html_()
    assert "<html" in rows.report()


def test_results_show_themselves(model):
    result = model.generate(QUESTIONS[0])
    assert result.text[:20] in repr(result) and "rows computed" in repr(result)
    assert str(result) == result.text
    page = result._repr_html_()
    assert page.count("<span") == len(result.ids) and "∎" in page
    # Equal neighbours share a rectangle; together with the five of the scale they are all cells.
    cells = re.findall(r'<rect [^>]*width="([0-9.]+)" height="([0-9.]+)"', page)
    area = sum(float(width) * float(height) for width, height in cells[:-5])
    assert area == pytest.approx(result.rows.size * 12 * 12)
    assert f"{result.rows.max()} rows" in page and "steps" in page
    frame = next(model.steps(QUESTIONS[0]))
    assert "settled" in repr(frame) and "<span" in frame._repr_html_()
    assert "minillada" in repr(model)
    assert repr(spa.Question("it's", "x")) == """spa.Question("it's", 'x')"""
    score = model.loglikelihood(QUESTIONS[0], "True", estimator="chain")
    row = model.compare(QUESTIONS[:1], caches=["none"])[0]
    for shown in (score, score.tokens[0], row):
        assert repr(shown).startswith(f"<spa.{type(shown).__name__} "), repr(shown)


@pytest.mark.parametrize(
    "work",
    [
        'while True: model.generate("not ( True ) is", cache="none", gen_length=512)',
        'model.compare(["not ( True ) is"] * 10000, caches=["none"], gen_length=128)',
        "model.loglikelihood([1], [2] * 1000, draws=2000)",
    ],
    ids=["generate", "compare", "loglikelihood"],
)
def test_ctrl_c_ends_the_work(work):
    """A process that computes for long is interrupted and says KeyboardInterrupt."""
    code = f"""
import signal, spa
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by a job in a shell's background
model = spa.Model(threads=1)
print("ready", flush=True)
try:
    {work}
except KeyboardInterrupt:
    print("interrupted", model.generate("not ( True ) is", gen_length=16).text, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert process.stdout.readline() == "ready\n"
        threading.Event().wait(0.5)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert out.startswith("interrupted") and "Answer" in out


def test_types_and_stubs():
    package = os.path.dirname(spa.__file__)
    assert os.path.exists(os.path.join(package, "py.typed"))
    stub = open(os.path.join(package, "_spa.pyi")).read()
    for name in ("class Model", "class Runs", "class Layer", "class Plan"):
        assert name in stub
