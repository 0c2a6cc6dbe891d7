"""The lm-evaluation-harness runs on the adapter and scores as `spa eval` does."""

import json
import math
import subprocess
import sys

import pytest

import spa

pytestmark = pytest.mark.slow

TASKS = {}
TASKS["gsm8k"] = """
task: spa_gsm8k
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
output_type: generate_until
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answer.split('####')[-1].strip()}}"
generation_kwargs: {until: ["\\n\\n", "Question:"], do_sample: false, max_gen_toks: 64}
filter_list:
  - name: last
    filter: [{function: regex, regex_pattern: "Answer: ([^\\\\n]+)"}, {function: take_first}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
fewshot_split: test
fewshot_config: {sampler: first_n}
"""
TASKS["choice"] = """
task: spa_choice
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
output_type: multiple_choice
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: label
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm, aggregation: mean, higher_is_better: true}
"""
TASKS["bbh"] = """
task: spa_bbh
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
output_type: generate_until
test_split: test
doc_to_text: "{{input}}"
doc_to_target: "{{target}}"
generation_kwargs: {until: ["</s>", "Q", "\\n\\n"], do_sample: false, temperature: 0.0, max_gen_toks: 64}
filter_list:
  - name: get-answer
    filter: [{function: regex, regex_pattern: "(?<=Answer: )(.*)"}, {function: take_first}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
TASKS["perplexity"] = """
task: spa_perplexity
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{question}} {{answer}}"
metric_list: [{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}]
"""


# What the embedded model was trained for; Python knows the answers.
EXPRESSIONS = [
    "not ( True and False )",
    "False or not ( True )",
    "True and not not ( False )",
    "not True or ( False or True )",
    "( True or False ) and not False",
    "not ( not False ) or False",
]


def questions():
    return [spa.Question(f"{text} is", str(eval(text))) for text in EXPRESSIONS]  # noqa: S307


def rows():
    for q in questions():
        yield {
            "question": q.text,
            "answer": f"Answer: {q.expected}\n#### {q.expected}",
            "choices": ["True", "False"],
            "label": int(q.expected == "False"),
            "input": q.text,
            "target": q.expected,
        }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of local tasks and their data; the hub is not asked for anything."""
    folder = tmp_path_factory.mktemp("lm_eval")
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    for name, text in TASKS.items():
        (folder / f"{name}.yaml").write_text(text.replace("DATA", str(data)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(folder / "hf"))
        yield folder


@pytest.fixture(scope="module")
def harness(folder):
    """The harness on local tasks; returns results, and samples by task."""
    import lm_eval
    import spa.lm_eval  # noqa: F401  the model `spa`
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)

    def run(*tasks: str, model="spa", model_args="cache=spa", chat=False, shots=None, batch=1):
        results = lm_eval.simple_evaluate(
            model=model,
            model_args=model_args,
            tasks=[f"spa_{task}" for task in tasks],
            task_manager=manager,
            apply_chat_template=chat,
            num_fewshot=shots,
            batch_size=batch,
            bootstrap_iters=0,
        )
        return results, {task: results["samples"][f"spa_{task}"] for task in tasks}

    return run


def test_the_scores_are_those_of_the_engine(harness, model):
    results, samples = harness("gsm8k", chat=True, batch=2)
    asked = questions()
    expected = model.generate([q.text for q in asked], gen_length=64, cache="spa")
    found = {s["doc"]["question"]: s["resps"][0][0] for s in samples["gsm8k"]}
    assert found == {q.text: r.text for q, r in zip(asked, expected)}
    right = [r.text.split("Answer: ")[-1] == q.expected for q, r in zip(asked, expected)]
    score = results["results"]["spa_gsm8k"]["exact_match,last"]
    assert score == pytest.approx(sum(right) / len(right)) and score > 0.5
    info = results["config"]["spa"]
    assert info["answers"] == len(asked) and info["cache"] == "spa"
    assert info["steps"] == sum(r.steps for r in expected)
    assert 0 < info["rows_fraction"] < 0.5 and info["tokens_per_second"] > 0


def test_options_batches_and_shots(harness):
    options = "cache=none,threshold=0.9,threads="
    alone, one = harness("gsm8k", model_args=options + "1", shots=2)
    batch, two = harness("gsm8k", model_args=options + "2", shots=2, batch=3)
    assert [s["resps"] for s in one["gsm8k"]] == [s["resps"] for s in two["gsm8k"]]
    assert alone["config"]["spa"]["steps"] == batch["config"]["spa"]["steps"]
    assert alone["config"]["spa"]["decode"] == {"threshold": "0.9"}
    shown = one["gsm8k"][0]["arguments"][0][0]
    assert shown.count(" is True\n") + shown.count(" is False\n") == 2  # the shots


METRICS = {
    "gsm8k": ["exact_match,last"],
    "bbh": ["exact_match,get-answer"],
    "choice": ["acc,none", "acc_norm,none"],
}


def test_the_server_gives_the_scores_of_the_adapter(harness, serve):
    """Generation in the chat template and without it, and choices left to right: every score and
    every answer."""
    address = serve("--cache", "spa", "--model-name", "mini")
    there = f"model=mini,base_url={address}/v1/"
    for chat, model, where, tasks in (
        (True, "local-chat-completions", "chat/completions", ("gsm8k", "bbh")),
        (False, "local-completions", "completions,max_length=1024", ("gsm8k", "bbh", "choice")),
    ):
        how = "cache=spa,estimator=chain"
        mine, samples = harness(*tasks, chat=chat, model_args=how)
        theirs, sent = harness(*tasks, chat=chat, model=model, model_args=there + where)
        for task in tasks:
            assert [s["resps"] for s in samples[task]] == [s["resps"] for s in sent[task]], task
            for metric in METRICS[task]:
                score = mine["results"][f"spa_{task}"][metric]
                assert score == theirs["results"][f"spa_{task}"][metric], (task, metric)
                assert not chat or score > 0.5, (task, metric)


def test_likelihoods_are_those_of_the_model(harness, model):
    results, samples = harness("choice", "perplexity", model_args="draws=16,seed=3")
    for sample in samples["choice"]:
        prompt = f"Question: {sample['doc']['question']}\nAnswer:"
        both = model.loglikelihood(
            [prompt] * 2, [" True", " False"], raw=True, draws=16, seed=3, greedy=True
        )
        assert [r[0] for r in sample["resps"]] == [(b.log_probability, b.is_greedy) for b in both]
    bits, length = 0.0, 0
    for sample in samples["perplexity"]:
        text = f"{sample['doc']['question']} {sample['doc']['answer']}"
        score = model.loglikelihood(model.stop_ids[:1], text, draws=16, seed=3)
        bits -= score.log_probability / math.log(2)
        length += len(text.encode())
    assert results["results"]["spa_perplexity"]["bits_per_byte,none"] == pytest.approx(bits / length)
    info = results["config"]["spa"]
    assert info["likelihoods"] == 3 * len(EXPRESSIONS) and info["log_probability_stderr"] > 0


def test_the_command_line(folder):
    command = [sys.executable, "-m", "spa.lm_eval", "--model", "spa", "--model_args", "cache=spa"]
    command += ["--tasks", "spa_gsm8k", "--include_path", str(folder), "--apply_chat_template"]
    command += ["--output_path", str(folder / "out"), "--log_samples", "--limit", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads(next(folder.glob("out/**/results_*.json")).read_text())
    assert results["config"]["spa"]["answers"] == 2
    assert len(next(folder.glob("out/**/samples_*.jsonl")).read_text().splitlines()) == 2


def test_pairs_and_windows():
    from lm_eval.api.instance import Instance
    from spa.lm_eval import SpaLM

    lm = SpaLM(estimator="chain")
    chat = lm.apply_chat_template([{"role": "user", "content": "not ( True ) is"}])
    ids = lm.model.encode("not ( True ) is").tolist()
    assert lm._pair(chat, "False") == (ids, lm.model.tokenize("False").tolist())
    answer = lm.model.tokenize("Answer: False").tolist()
    begun = lm.model.tokenize("Answer:").tolist()
    assert lm._pair(chat + "Answer:", " False") == (ids + begun, answer[len(begun) :])
    assert lm._pair("", "False") == ([lm.model.stop_ids[0]], lm.model.tokenize("False").tolist())

    def ask(*arguments):
        return Instance("loglikelihood", {}, arguments, 0)

    # A context that is too long loses its beginning.
    context = "True and " * lm.model.context_length
    prompt, target = lm._pair(context + "False", " is")
    prompt = prompt[len(target) - lm.model.context_length :]
    expected = lm.model.loglikelihood(prompt, target, estimator="chain")
    assert lm.loglikelihood([ask(context + "False", " is")])[0][0] == expected.log_probability
    # A text longer than the context is scored in windows; what precedes the last one fills it.
    lm = SpaLM(draws=8)
    text = "not ( True ) " * (lm.model.context_length // 3)
    ids, window = lm.model.tokenize(text).tolist(), lm.model.context_length - 1
    assert window < len(ids) < 2 * window
    first = lm.model.loglikelihood(lm.model.stop_ids[:1], ids[:window], draws=8)
    last = lm.model.loglikelihood(ids[-window - 1 : window], ids[window:], draws=8)
    total = lm.loglikelihood_rolling([ask(text)])[0]
    assert total == pytest.approx(first.log_probability + last.log_probability)


def test_answers_end_at_stop_strings_and_fit_the_context():
    from spa.lm_eval import SpaLM

    lm = SpaLM(cache="spa")
    chosen, stops = lm._options({"until": ["\n", ""], "max_gen_toks": 10**6, "top_p": 0.9}, 100)
    assert stops == ["\n"] and 100 + chosen["gen_length"] <= lm.model.context_length
    assert "top_p" not in chosen
    with pytest.raises(spa.Error, match="did you mean"):
        SpaLM(treshold=0.9)
    prompt = lm.apply_chat_template(
        [{"role": "user", "content": "not ( True ) is"}, {"role": "assistant", "content": "=>"}], False
    )
    chat = lm.model.encode("not ( True ) is").tolist()
    assert lm._ids(prompt) == chat + lm.model.tokenize("=>").tolist()


def test_an_interrupted_run_has_stored_its_answers():
    from lm_eval.api.instance import Instance
    from spa.lm_eval import SpaLM

    lm, stored = SpaLM(cache="spa"), []

    class Hook:
        def add_partial(self, kind, arguments, answer):
            stored.append((kind, arguments[0], answer))
            if len(stored) == 2:
                raise KeyboardInterrupt

    lm.set_cache_hook(Hook())
    requests = [
        Instance("generate_until", {}, (f"{text} is", {"max_gen_toks": 32}), 0)
        for text in EXPRESSIONS[:3]
    ]
    with pytest.raises(KeyboardInterrupt):
        lm.generate_until(requests, disable_tqdm=True)
    expected = lm.model.generate([lm._ids(r.args[0]) for r in requests[:2]], cache="spa", gen_length=32)
    assert stored == [
        ("generate_until", r.args[0], e.text) for r, e in zip(requests, expected)
    ]
