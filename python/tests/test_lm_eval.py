"""The lm-evaluation-harness runs on the adapter and scores as `spa eval` does."""

import json
import os
import subprocess
import sys

import pytest

import spa

pytestmark = pytest.mark.slow

GSM8K = """
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
num_fewshot: SHOTS
fewshot_split: test
fewshot_config: {sampler: first_n}
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


@pytest.fixture(scope="module")
def harness(tmp_path_factory):
    """Runs the harness's command line on a local task; returns results and samples."""
    folder = tmp_path_factory.mktemp("lm_eval")
    data = folder / "data.jsonl"
    data.write_text(
        "".join(
            json.dumps({"question": q.text, "answer": f"Answer: {q.expected}\n#### {q.expected}"}) + "\n"
            for q in questions()
        )
    )

    def run(name: str, *flags: str, model_args: str = "cache=spa", shots: int = 0):
        task = folder / name
        task.mkdir()
        (task / "task.yaml").write_text(
            GSM8K.replace("DATA", str(data)).replace("SHOTS", str(shots))
        )
        command = [sys.executable, "-m", "spa.lm_eval", "--model", "spa"]
        command += ["--model_args", model_args, "--tasks", "spa_gsm8k", "--include_path", str(task)]
        command += ["--output_path", str(task / "out"), "--log_samples", *flags]
        offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf"), "PYTHONUNBUFFERED": "1"}
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **offline}, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        results = json.loads(next(task.glob("out/**/results_*.json")).read_text())
        lines = next(task.glob("out/**/samples_*.jsonl")).read_text().splitlines()
        return results, [json.loads(line) for line in lines]

    return run


def test_the_scores_are_those_of_the_engine(harness, model):
    results, samples = harness("chat", "--apply_chat_template", "--batch_size", "2")
    asked = questions()
    expected = model.generate([q.text for q in asked], gen_length=64, cache="spa")
    found = {s["doc"]["question"]: s["resps"][0][0] for s in samples}
    assert found == {q.text: r.text for q, r in zip(asked, expected)}
    right = [r.text.split("Answer: ")[-1] == q.expected for q, r in zip(asked, expected)]
    score = results["results"]["spa_gsm8k"]["exact_match,last"]
    assert score == pytest.approx(sum(right) / len(right)) and score > 0.5
    info = results["config"]["spa"]
    assert info["answers"] == len(asked) and info["cache"] == "spa"
    assert info["steps"] == sum(r.steps for r in expected)
    assert 0 < info["rows_fraction"] < 0.5 and info["tokens_per_second"] > 0


def test_options_batches_and_shots(harness):
    alone, one = harness("one", model_args="cache=none,threshold=0.9,threads=1", shots=2)
    batch, two = harness(
        "two", "--batch_size", "3", model_args="cache=none,threshold=0.9,threads=2", shots=2
    )
    assert [s["resps"] for s in one] == [s["resps"] for s in two]
    assert alone["config"]["spa"]["steps"] == batch["config"]["spa"]["steps"]
    assert alone["config"]["spa"]["decode"] == {"threshold": "0.9"}
    shown = one[0]["arguments"]["gen_args_0"]["arg_0"]
    assert shown.count(" is True\n") + shown.count(" is False\n") == 2  # the shots


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
