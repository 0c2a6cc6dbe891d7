"""A cache written in Python is a cache."""

import gc
import json
import threading
import weakref

import numpy as np
import pytest
from conftest import QUESTIONS, ROOT, example, same

import spa

dual, own_spa = example("dual_cache"), example("spa_cache")
# In the model's own blocks of one token the dual cache has nothing to reuse.
BLOCKS = {"block_length": 16}


class Everything(spa.CachePolicy):
    """All rows: none, by another way."""


@pytest.mark.parametrize(
    "mine, theirs",
    [
        (Everything, "none"),
        (dual.DualCache, "fast-dual"),
        (lambda: dual.DualCache(refresh=4), "fast-dual:refresh=4"),
        ("my-dual:refresh=4", "fast-dual:refresh=4"),
        (own_spa.SpaCache, "spa:preset=paper"),
        ("my-spa", "spa:preset=paper"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"threshold": 0.9}, {"cfg_scale": 0.5}], ids=str)
def test_the_same_tokens_as_the_built_in_one(model, mine, theirs, options):
    for question in QUESTIONS:
        a = model.generate(question, cache=mine, **BLOCKS, **options)
        b = model.generate(question, cache=theirs, **BLOCKS, **options)
        assert same(a.ids, b.ids)
        if theirs != "none":
            assert a.rows_computed == b.rows_computed < a.rows_total / 2
            assert same(a.rows, b.rows)


def test_the_same_tokens_on_another_family(generate):
    """Dream predicts a position from the row before it; no policy needs to know."""
    shifted = spa.Model(ROOT / "models" / "minidream.gguf", threads=1)
    for mine, theirs in ((dual.DualCache, "fast-dual"), (own_spa.SpaCache, "spa:preset=paper")):
        a = shifted.generate(QUESTIONS[0], cache=mine, **BLOCKS)
        b = shifted.generate(QUESTIONS[0], cache=theirs, **BLOCKS)
        assert same(a.ids, b.ids) and same(a.rows, b.rows)


@pytest.mark.parametrize("name", ["dual_cache", "spa_cache"])
def test_an_example_is_at_most_40_lines(name):
    lines = (ROOT / "examples" / "python" / f"{name}.py").read_text().split("\nif __name__")[0]
    assert len(lines.strip().split("\n")) <= 40


def test_the_options_of_a_class(model):
    a = model.generate(QUESTIONS[0], cache=dual.DualCache, cache_options={"refresh": 4}, **BLOCKS)
    b = model.generate(QUESTIONS[0], cache="my-dual:refresh=4", **BLOCKS)
    assert same(a.ids, b.ids) and same(a.rows, b.rows) and a.cache == "DualCache(refresh=4)"
    with pytest.raises(TypeError, match="refersh"):
        model.generate(QUESTIONS[0], cache=dual.DualCache, cache_options={"refersh": 4})


def test_many_caches_do_not_pile_up(model):
    made = []
    for _ in range(50):
        made.append(weakref.ref(cache := lambda: Everything()))
        model.generate(QUESTIONS[0], cache=cache, gen_length=1)
    del cache
    gc.collect()
    assert sum(reference() is not None for reference in made) <= 32


def test_in_a_batch_and_in_threads(model):
    expected = [model.generate(q, cache="fast-dual", **BLOCKS) for q in QUESTIONS]
    found: list = []

    def ask():
        found.append(model.generate(QUESTIONS, cache=dual.DualCache, batch=2, **BLOCKS))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    for answers in found:
        assert all(same(a.ids, b.ids) for a, b in zip(answers, expected))


def test_registered_it_works_in_compare_and_evaluate(model, tmp_path):
    caches = ["fast-dual", "my-dual", "my-dual:refresh=2"]
    rows = model.compare(QUESTIONS, caches=caches, **BLOCKS)
    assert [row.cache for row in rows] == ["none", "fast-dual", "my-dual", "my-dual(refresh=2)"]
    assert rows[1].rows_fraction == rows[2].rows_fraction < rows[3].rows_fraction
    data = tmp_path / "one.jsonl"
    data.write_text(json.dumps({"question": QUESTIONS[0], "answer": "True"}) + "\n")
    how = {"task": "jsonl", "extract": r"Answer: *([^\n]*)"}
    mine = model.evaluate(data, cache="my-dual", **how)
    assert mine.total.correct == model.evaluate(data, cache="fast-dual", **how).total.correct
    assert "in Python" in json.loads(mine.settings)["cache"]
    for cache, words in (
        ("my-dual:refersh=2", "did you mean 'refresh'"),
        ("my-dual:refresh=x", "refresh is like 0, not 'x'"),
    ):
        with pytest.raises(spa.Error, match=words):
            model.evaluate(data, cache=cache, **how)
    for name, cache, words in (
        ("spa", dual.DualCache, "there is a cache 'spa' already"),
        ("a:b", dual.DualCache, "letters, digits"),
        ("wide", lambda width: None, "the option width of the cache wide needs a default"),
    ):
        with pytest.raises(spa.Error, match=words):
            spa.register(name, cache)


class Fails(Everything):
    calls = 0

    def plan_layer(self, layer):
        if layer.step.step == 3 and layer.index == 2:
            raise ZeroDivisionError("in my cache")
        return layer.live


def test_an_exception_ends_that_generation_and_nothing_else(model):
    expected = model.generate(QUESTIONS[0])
    other = model.steps(QUESTIONS[1])
    next(other)
    with pytest.raises(ZeroDivisionError, match="in my cache") as error:
        model.generate(QUESTIONS[0], cache=Fails)
    assert error.traceback[-1].name == "plan_layer"
    assert same(list(other)[-1].ids, model.generate(QUESTIONS[1]).ids)
    spa.register("fails", Fails)
    with pytest.raises(ZeroDivisionError):
        model.compare(QUESTIONS, caches=["fails"])
    assert same(model.generate(QUESTIONS[0]).ids, expected.ids)


def answer(**methods):
    """A cache with some methods replaced."""
    return type("Odd", (Everything,), methods)


@pytest.mark.parametrize(
    "cache, words",
    [
        (answer(begin_step=lambda self, step: [10**6]), "there is no row 1000000"),
        (answer(begin_step=lambda self, step: [-1]), "there is no row -1"),
        (answer(begin_step=lambda self, step: [True]), "a mask of 1 rows"),
        (answer(begin_step=lambda self, step: [0.5]), "whole numbers or a mask"),
        (answer(begin_step=lambda self, step: None), "rows are"),
        (answer(plan_layer=lambda self, layer: [[1]]), "a list or an array"),
        (answer(plan_layer=lambda self, layer: layer.values([10**6])), "there is no row"),
        (answer(plan_layer=lambda self, layer: layer.proxies([0])), 'proxies = "spa"'),
        (
            answer(plan_layer=lambda self, layer: spa.Plan(layer.live, queries=layer.live)),
            "query_layers",
        ),
        (answer(attention_weights=True, after_attention=lambda self, a: [10**6]), "no row"),
        (answer(reuse="what"), "'nothing', 'update' or 'output', not 'what'"),
        (answer(proxies="dllm"), "options of spa, not of dllm"),
        (answer(proxies="spa:rnk=1"), "did you mean 'rank'"),
    ],
)
def test_wrong_answers_are_told(model, cache, words):
    with pytest.raises((spa.Error, TypeError)) as error:
        model.generate(QUESTIONS[0], cache=cache)
    assert words in str(error.value)


def test_views_do_not_outlive_their_call(model):
    kept = []
    keeps = answer(plan_layer=lambda self, layer: (kept.append(layer.inputs), layer.live)[1])
    with pytest.raises(spa.Error, match="keep a copy"):
        model.generate(QUESTIONS[0], cache=keeps)
    slices = answer(plan_layer=lambda self, layer: (kept.append(layer.inputs[1:3]), layer.live)[1])
    with pytest.raises(spa.Error, match="keep a copy"):
        model.generate(QUESTIONS[0], cache=slices)
    later = []
    steps = answer(begin_step=lambda self, step: (later.append(step), step.visible)[1])
    model.generate(QUESTIONS[0], cache=steps)
    with pytest.raises(spa.Error, match="only while the cache is called"):
        later[0].ids
    model_inside = answer(begin_step=lambda self, step: model.generate(QUESTIONS[0]).ids)
    with pytest.raises(spa.Error, match="from inside a cache"):
        model.generate(QUESTIONS[0], cache=model_inside)


def test_what_a_cache_sees(model):
    """Shapes, and what follows from the definitions: weights sum to one, normed rows are inputs over
    their RMS times one gain, a row's values do not depend on the rows beside it."""
    seen = {}

    class Looks(Everything):
        attention_weights = True
        proxies = "spa:rank=4"

        def begin_step(self, step):
            if step.step == 1:
                seen["step"] = (step.ids, step.masked, step.visible, step.changed, step.wanted)
                seen["block"] = (step.prompt_length, step.block_begin, step.block_end)
            return step.visible

        def plan_layer(self, layer):
            if layer.step.step == 0 and layer.index == 1:
                seen["inputs"] = layer.inputs.copy()
                seen["normed"] = layer.normed(layer.live).copy()
                seen["values"] = layer.values(layer.live).copy()
                seen["one"] = layer.values([3]).copy()
                seen["proxies"] = layer.proxies(layer.live).copy()
                seen["budget"] = layer.budget
                assert not layer.inputs.flags.owndata and not layer.inputs.flags.writeable
            return layer.live

        def after_attention(self, attention):
            if attention.step.step == 0 and attention.index == 1:
                seen["weights"] = attention.weights.copy()
                seen["heads"] = attention.heads.copy()
                seen["queries"] = attention.queries.copy()

        def end_step(self, positions, confidence):
            seen["end"] = (positions, confidence)

    result = model.generate(QUESTIONS[0], cache=Looks, gen_length=32, block_length=16)
    n, width = result.prompt_tokens + 32, model.width
    ids, masked, visible, changed, wanted = seen["step"]
    assert len(ids) == n and masked.sum() == 31 and same(visible, np.arange(n))
    assert len(changed) == 1 and not masked[changed[0]] and masked[wanted].all()
    assert seen["block"] == (result.prompt_tokens, result.prompt_tokens, result.prompt_tokens + 16)
    assert seen["inputs"].shape == seen["normed"].shape == (n, width)
    scale = seen["normed"] / seen["inputs"]
    rms = np.sqrt((seen["inputs"] ** 2).mean(axis=1, keepdims=True))
    np.testing.assert_allclose(scale * rms, np.broadcast_to((scale * rms)[:1], scale.shape), rtol=1e-2)
    np.testing.assert_array_equal(seen["values"][3:4], seen["one"])
    assert seen["proxies"].shape == (n, 4) and 0 < seen["budget"] <= 1
    assert seen["weights"].shape == (n, n)
    np.testing.assert_allclose(seen["weights"].sum(axis=1), 1, rtol=1e-4)
    assert seen["heads"].shape[0] == seen["queries"].shape[0] == n
    assert len(seen["end"][0]) == len(seen["end"][1])


def test_a_plan_says_more_than_one_set_of_rows(model):
    """Keys and values of every row, outputs of those that are read: what the last layer needs."""

    class Wide(Everything):
        reuse = "update"

        def plan_layer(self, layer):
            if layer.step.step == 0:
                return layer.live
            rows = np.union1d(layer.step.wanted, layer.step.changed)
            return spa.Plan(rows, keys=layer.live, values=layer.live)

    class Half(Everything):
        reuse = "update"

        def plan_layer(self, layer):
            return spa.Plan(layer.live, choose_after_attention=layer.step.step > 0)

        def after_attention(self, attention):
            return attention.rows[attention.rows >= attention.step.prompt_length]

    for cache in (Wide, Half):
        result = model.generate(QUESTIONS[0], cache=cache)
        assert result.ended and 0 < result.rows_fraction < 1
        assert (result.rows[1:, 1] < result.rows[0, 1]).all()


def test_masks_lists_and_numbers_name_the_same_rows(model):
    expected = model.generate(QUESTIONS[0], cache="none").ids
    for convert in (
        lambda rows, n: np.isin(np.arange(n), rows),
        lambda rows, n: rows.tolist(),
        lambda rows, n: rows[::-1].astype(np.int64),
        lambda rows, n: np.concatenate([rows, rows]).astype(np.int32),
        lambda rows, n: range(rows[0], rows[-1] + 1),
    ):
        cache = answer(begin_step=lambda self, step: convert(step.visible, step.num_rows))
        assert same(model.generate(QUESTIONS[0], cache=cache).ids, expected)


def test_no_rows_in_any_form(model):
    """The engine adds those it needs."""
    for nothing in ([], np.array([]), np.array([], np.int64)):
        cache = answer(
            begin_step=lambda self, step, nothing=nothing: step.visible if step.step == 0 else nothing
        )
        frames = list(model.steps(QUESTIONS[0], cache=cache, gen_length=32))
        assert frames[-1].settled.all() or frames[-1].ended
        assert len(frames[1].rows[0]) < len(frames[0].rows[0])
