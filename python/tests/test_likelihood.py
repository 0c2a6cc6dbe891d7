"""spa.Model.loglikelihood gives the engine's numbers: those of a plain NumPy computation
(tests/data/likelihoods.json), and to the last bit those of the server."""

import json
import urllib.request

import pytest
from conftest import QUESTIONS, ROOT

import spa

DATA = ROOT / "tests/data"
CASES = json.loads((DATA / "likelihoods.json").read_text())
CLOSE = 2e-4  # float32 against float64, weighted up to 24 times


@pytest.mark.parametrize("name", sorted({case["model"] for case in CASES}))
def test_the_numbers_of_a_plain_computation(name):
    model = spa.Model(DATA / name, threads=2)
    for case in [case for case in CASES if case["model"] == name]:
        prompt, target = case["prompt"], case["target"]
        how = {"draws": case["draws"], "seed": case["seed"], "end_token": case["end_token"]}
        for estimator in {"enumerate", "llada", "dream"} & set(case):
            score = model.loglikelihood(prompt, target, estimator=estimator, **how)
            expected = case[estimator]
            assert score.log_probability == pytest.approx(expected[0], abs=CLOSE, rel=0), estimator
            assert score.standard_error == pytest.approx(expected[1], abs=CLOSE, rel=0), estimator
            assert score.is_greedy is None and score.tokens == []
        chain = model.loglikelihood(prompt, target, estimator="chain")
        numbers = [(t.log_probability, t.best, t.best_log_probability) for t in chain.tokens]
        for mine, expected in zip(numbers, case["chain"], strict=True):
            assert mine == pytest.approx(tuple(expected), abs=CLOSE, rel=0)
        assert chain.is_greedy == ([t.best for t in chain.tokens] == target)
        asked = model.loglikelihood(prompt, target, draws=16, greedy=True)
        assert asked.is_greedy == case["greedy"]


def server_scores(address: str, ids: list[int]) -> list[float]:
    body = {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 1}
    request = urllib.request.Request(
        address + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    return json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["logprobs"]["token_logprobs"]


@pytest.mark.parametrize("name", ["", "tiny-llada-hf", "tiny-dream-F32.gguf"])
def test_the_numbers_of_the_server(serve, name):
    path = DATA / name if name else None
    model = spa.Model(path, threads=1)
    address = serve(*(["-m", str(path)] if path else []))
    for cut in (1, 4, 7):
        ids = [3, 1, 4, 1, 5, 9, 2, 6, 5]
        score = model.loglikelihood(ids[:cut], ids[cut:], estimator="chain")
        theirs = server_scores(address, ids)
        assert theirs[0] is None
        assert [token.log_probability for token in score.tokens] == theirs[cut:]


def test_texts_messages_and_lists(model):
    question = QUESTIONS[0]
    chat = model.encode(question).tolist()
    right = model.generate(question).text
    assert right.endswith("True")
    answers = [right, right.removesuffix("True") + "False"]
    both = model.loglikelihood(question, answers)
    ids = [model.tokenize(answer) for answer in answers]
    messages = [{"role": "user", "content": question}]
    for same in (
        [model.loglikelihood(question, answer) for answer in answers],
        [model.loglikelihood(chat, target) for target in ids],
        model.loglikelihood([chat, messages], ids),
        model.loglikelihood([question, chat], [answers[0], ids[1].tolist()]),
    ):
        assert [s.log_probability for s in same] == [s.log_probability for s in both]
    assert both[0].log_probability > both[1].log_probability
    assert model.loglikelihood(question, []) == []
    assert repr(both[0]).startswith("<spa.Likelihood -")


def test_white_space_at_the_border_belongs_to_the_target(model):
    after = model.loglikelihood("not ( True ) is", " False", raw=True, estimator="chain")
    before = model.loglikelihood("not ( True ) is ", "False", raw=True, estimator="chain")
    assert after.log_probability == before.log_probability
    assert len(after.tokens) == len(model.tokenize("not ( True ) is False")) - len(
        model.tokenize("not ( True ) is")
    )


def test_draws_need_a_seed_and_nothing_else(model):
    target = QUESTIONS[1] + QUESTIONS[2]
    scores = [
        model.loglikelihood(QUESTIONS[0], target, draws=16, seed=seed).log_probability
        for seed in (0, 0, 1)
    ]
    assert scores[0] == scores[1] != scores[2]
    one_thread = spa.Model(threads=1).loglikelihood(QUESTIONS[0], target, draws=16)
    assert one_thread.log_probability == scores[0]


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda m: m.loglikelihood("x", "y", estimator="chane"), "did you mean 'chain'"),
        (lambda m: m.loglikelihood("x", ""), "the target is empty"),
        (lambda m: m.loglikelihood([], [1]), "the prompt is empty"),
        (lambda m: m.loglikelihood(["x"], ["y", "z"]), "1 prompts cannot have 2 targets"),
        (lambda m: m.loglikelihood("x", [10**6]), "outside the vocabulary"),
        (lambda m: m.loglikelihood("x", [1] * 2048), "the model's context is"),
        (lambda m: m.loglikelihood("x", "True and False or True", draws=0), "at least one draw"),
        (lambda m: m.loglikelihood("", "y", raw=True), "is empty"),
    ],
)
def test_what_cannot_be_scored_is_told_in_a_line(model, call, words):
    with pytest.raises(spa.Error, match=words) as caught:
        call(model)
    assert "\n" not in str(caught.value)
