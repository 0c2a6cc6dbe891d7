"""The suite of the paper's benchmarks: settings, data as the hub ships it, and lm-eval's scores.
The questions here are our own, in the form of the published ones."""

import csv
import gzip
import json
import subprocess
import sys

import pytest
import spa
from spa import sandbox
from spa.benchmarks import BENCHMARKS, TABLES, Run, data, score, settings, suite


def jsonl(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def test_spa_as_the_paper_ran_it():
    assert settings.paper_cache("spa", "llada", "gsm8k") == (
        "spa:preset=reference:rank=128:refresh-prompt=50:refresh-gen=7:rho-peak=0.25:rho-min=0.0625"
    )
    assert settings.paper_cache("spa:rank=64:rho=0.25", "dream", "mbpp") == (
        "spa:preset=reference:rank=64:refresh-prompt=8:refresh-gen=3:rho=0.25"
    )
    assert settings.paper_cache("dllm", "dream", "mbpp") == "dllm"


def test_the_engine_accepts_every_cache_and_option(model):
    known = {
        cache["name"]: {o["name"] for o in cache["options"]} for cache in spa.options()["caches"]
    }
    decode = {option["name"].replace("-", "_") for option in spa.options()["decode"]}
    for table in TABLES.values():
        for family in table.families:
            for benchmark in table.benchmarks:
                for method in table.methods:
                    run = Run(benchmark, "x", family, cache=method.cache, decode=method.decode)
                    name, *options = run.spec.split(":")
                    assert {option.split("=")[0] for option in options} <= known[name]
                    assert set(run.options) <= decode
    run = Run("gsm8k", "x", "llada", cache="none", decode={"gen_length": 4})
    assert run.options["block_length"] == 4
    model.generate("not ( True ) is", cache="none", **run.options)


def test_runs_that_differ_have_folders_of_their_own():
    runs = [
        Run("gsm8k", "x"),
        Run("gsm8k", "x", cache="none"),
        Run("gsm8k", "x", shots=0),
        Run("gsm8k", "x", decode={"threshold": 0.9}),
        Run("gsm8k", "x", limit=3),
        Run("gsm8k", "x", model="other"),
    ]
    assert len({run.folder for run in runs}) == len(runs)
    assert Run("gsm8k", "x", threads=2, batch=1).folder == runs[0].folder


def test_forms_of_files(tmp_path):
    rows = [{"a": "1"}, {"a": "zwei"}]
    jsonl(tmp_path / "r.jsonl", rows)
    jsonl(tmp_path / "r.jsonl.gz", rows)
    (tmp_path / "r.json").write_text(json.dumps({"canary": "", "examples": rows}))
    (tmp_path / "r.csv").write_text("a\n1\nzwei\n")
    for name in ("r.jsonl", "r.jsonl.gz", "r.json", "r.csv"):
        assert data.read(tmp_path / name) == rows, name
    (tmp_path / "r.jsonl").write_text("{")
    with pytest.raises(spa.Error, match="r.jsonl cannot be read"):
        data.read(tmp_path / "r.jsonl")


def test_splits_and_shards(tmp_path):
    jsonl(tmp_path / "gsm8k/main/test-00001-of-00002.jsonl", [{"n": 2}])
    jsonl(tmp_path / "gsm8k/main/test-00000-of-00002.jsonl", [{"n": 1}])
    jsonl(tmp_path / "gsm8k/socratic/test-00000-of-00001.jsonl", [{"n": 3}])
    assert data.splits(tmp_path, "openai/gsm8k", "main") == {"test": [{"n": 1}, {"n": 2}]}
    jsonl(tmp_path / "mbpp/mbpp.jsonl", [{"task_id": n} for n in (2, 11, 510, 511, 974)])
    found = data.splits(tmp_path, "google-research-datasets/mbpp", "full")
    assert found["test"] == [{"task_id": 11}, {"task_id": 510}]


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_missing_data_is_one_line_that_tells_where(tmp_path, benchmark):
    with pytest.raises(spa.Error, match=f"^{benchmark} is not in .*: put .*: hf download ") as caught:
        score(Run(benchmark, str(tmp_path)))
    assert "\n" not in str(caught.value)


# ---- with lm-eval

QUESTIONS = {
    "gsm8k": {"question": "Two and two apples?", "answer": "2 + 2 = 4.\n#### 4"},
    "gpqa": {
        "Question": "Which is a noble gas?",
        "Correct Answer": "Neon",
        "Incorrect Answer 1": "Iron",
        "Incorrect Answer 2": "Salt",
        "Incorrect Answer 3": "Clay",
    },
    "math": {"problem": "What is $1+1$?", "solution": "It is $\\boxed{2}$.", "level": "1"},
    "bbh": {"input": "not ( True ) is", "target": "False"},
    "mmlu_pro": {
        "question_id": 1,
        "question": "Which is a tree?",
        "options": ["Oak", "Cat", "Iron"],
        "answer": "A",
        "cot_content": "A: Let's think step by step. Oaks grow. The answer is (A).",
        "category": "biology",
    },
    "mbpp": {
        "task_id": 11,
        "text": "Write a function to double a number.",
        "code": "def double(n):\n    return 2 * n",
        "test_list": [f"assert double({n}) == {2 * n}" for n in range(3)],
        "test_setup_code": "",
    },
    "humaneval": {
        "task_id": "HumanEval/0",
        "prompt": 'def half(n):\n    """ Half of n. """\n',
        "entry_point": "half",
        "test": "def check(candidate):\n    assert candidate(4) == 2\n",
    },
}
RIGHT = {
    "gsm8k": lambda doc: "2 + 2 = 4.\n#### 4",
    "gpqa": lambda doc: f"The answer is {doc['answer']}.",
    "math": lambda doc: "Final Answer: The final answer is $2$. I hope it is correct.",
    "bbh": lambda doc: "So the answer is False.",
    "mmlu_pro": lambda doc: "Oaks grow. The answer is (A).",
    "mbpp": lambda doc: doc["code"],
    "humaneval": lambda doc: "    return n // 2",
}
WRONG = {
    "math": "Final Answer: The final answer is $3$. I hope it is correct.",
    "gpqa": "The answer is (Z).",
    "mbpp": "import sys\nsys.exit(0)",
    "humaneval": "    while True: pass",
}


@pytest.fixture
def hub(tmp_path):
    """A question of every benchmark, in the forms the hub ships."""
    pytest.importorskip("lm_eval")
    import pyarrow
    import pyarrow.parquet

    def parquet(path, rows):
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)

    q = QUESTIONS
    jsonl(tmp_path / "gsm8k/train.jsonl", [{**q["gsm8k"], "question": f"{n}?"} for n in range(8)])
    jsonl(tmp_path / "gsm8k/test.jsonl", [q["gsm8k"]])
    (tmp_path / "gpqa").mkdir()
    with open(tmp_path / "gpqa/gpqa_main.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, q["gpqa"])
        writer.writeheader()
        writer.writerows({**q["gpqa"], "Question": f"{n}?"} for n in range(8))
    for config in ("algebra", "geometry"):
        parquet(tmp_path / f"math/{config}/test-00000-of-00001.parquet", [q["math"]])
    (tmp_path / "bbh").mkdir()
    (tmp_path / "bbh/boolean_expressions.json").write_text(json.dumps({"examples": [q["bbh"]]}))
    categories = [
        *("biology", "business", "chemistry", "computer science", "economics", "engineering"),
        *("health", "history", "law", "math", "other", "philosophy", "physics", "psychology"),
    ]
    for split in ("test", "validation"):
        parquet(
            tmp_path / f"mmlu_pro/data/{split}-00000-of-00001.parquet",
            [{**q["mmlu_pro"], "category": c} for c in categories for _ in range(6)],
        )
    parquet(tmp_path / "mbpp/full/test-00000-of-00001.parquet", [q["mbpp"]])
    jsonl(tmp_path / "humaneval/HumanEval.jsonl.gz", [q["humaneval"]])
    return tmp_path


def speaker(answer):
    """A model for lm-eval with a given answer to each question."""
    from lm_eval.api.model import LM

    class Speaker(LM):
        tokenizer_name = "speaker"
        asked = []

        def generate_until(self, requests, disable_tqdm=False):
            self.asked += [request.args[0] for request in requests]
            return [answer(request.doc) for request in requests]

        def apply_chat_template(self, chat_history, add_generation_prompt=True):
            return json.dumps(chat_history)

        def chat_template(self, chat_template=False):
            return "json"

        def loglikelihood(self, requests, disable_tqdm=False):
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    return Speaker()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llada", "dream"])
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_lm_eval_scores_right_and_wrong_answers(hub, monkeypatch, benchmark, family):
    def right(doc):
        if family == "dream" and benchmark == "gsm8k":
            return "The answer is 4."
        return RIGHT[benchmark](doc)

    monkeypatch.setattr(suite._CodeEval, "limits", sandbox.Limits(seconds=20))
    for answer, expected in ((right, 1.0), (lambda doc: WRONG.get(benchmark, "7"), 0.0)):
        model = speaker(answer)
        monkeypatch.setattr(suite, "_lm", lambda run, model=model: model)
        run = Run(benchmark, str(hub), family, out=str(hub / f"out-{expected}"))
        result = score(run)
        values = {name: s["value"] for name, s in result["scores"].items()}
        assert set(values.values()) == {expected}, values
        if benchmark in ("mbpp", "humaneval"):
            wrong = "failed" if benchmark == "mbpp" else "timeout"
            assert result["verdicts"] == {"passed" if expected else wrong: 1}
        assert model.asked and (run.folder / "samples.jsonl").is_file()
        chat = settings.FAMILIES[family].benchmarks[benchmark].chat
        assert model.asked[0].startswith('[{"role"') == chat
        if chat:
            shots = sum(m["role"] == "assistant" for m in json.loads(model.asked[0]))
            assert shots == run.setting.shots
        assert score(run) == result  # read, not run


@pytest.mark.slow
def test_math_is_scored_by_value(hub, monkeypatch):
    """Equal numbers and expressions in other clothes are right; near ones are wrong."""
    import pyarrow
    import pyarrow.parquet

    answers = [
        (r"\frac{1}{2}", r"\frac{1}{2}", True),
        (r"\frac{1}{2}", "0.5", True),
        (r"\frac{1}{2}", r"\frac{2}{4}", True),
        ("x^2+1", "1+x^2", True),
        (r"2\sqrt{3}", r"\sqrt{12}", True),
        (r"\frac{1}{2}", "0.51", False),
        ("x^2+1", "x^2-1", False),
        ("12", "21", False),
    ]
    rows = [
        {"problem": f"{n}?", "solution": rf"It is $\boxed{{{true}}}$.", "level": "1"}
        for n, (true, _, _) in enumerate(answers)
    ]
    for config in ("algebra", "geometry"):
        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist(rows), hub / f"math/{config}/test-00000-of-00001.parquet"
        )

    def answer(doc):
        given = answers[int(doc["problem"].rstrip("?"))][1]
        return f"Final Answer: The final answer is ${given}$. I hope it is correct."

    monkeypatch.setattr(suite, "_lm", lambda run: speaker(answer))
    run = Run("math", str(hub), shots=0, out=str(hub / "out"))
    result = score(run)
    right = sum(ok for _, _, ok in answers) / len(answers)
    assert result["scores"]["exact_match"]["value"] == result["scores"]["math_verify"]["value"]
    assert result["scores"]["exact_match"]["value"] == right
    for line in (run.folder / "samples.jsonl").read_text().splitlines():
        sample = json.loads(line)
        ok = answers[int(sample["doc"]["problem"].rstrip("?"))][2]
        assert sample["exact_match"] == ok, sample["doc"]


@pytest.mark.slow
def test_a_program_passes_all_its_tests_or_none(hub, monkeypatch):
    """MBPP: right, wrong in the last test, endless, broken, and one that would print its success."""
    programs = [
        ("def double(n):\n    return n + n", "passed"),
        ("def double(n):\n    return 2 * n if n < 2 else 5", "failed"),
        ("def double(n):\n    while True: pass", "timeout"),
        ("def double(n):\n    return 2 *", "failed"),
        ("print('passed')", "failed"),
    ]
    jsonl(
        hub / "mbpp/mbpp.jsonl",
        [{**QUESTIONS["mbpp"], "task_id": 11 + n} for n in range(len(programs))],
    )
    (hub / "mbpp/full/test-00000-of-00001.parquet").unlink()
    monkeypatch.setattr(suite._CodeEval, "limits", sandbox.Limits(seconds=60, cpu_seconds=2))
    answer = speaker(lambda doc: programs[doc["task_id"] - 11][0])
    monkeypatch.setattr(suite, "_lm", lambda run: answer)
    result = score(Run("mbpp", str(hub), shots=0, out=str(hub / "out")))
    assert result["scores"]["pass_at_1"]["value"] == 1 / len(programs)
    assert result["verdicts"] == {"passed": 1, "failed": 3, "timeout": 1}


@pytest.mark.slow
def test_the_command_with_the_engine(hub):
    pytest.importorskip("spa.lm_eval")
    command = [sys.executable, "-m", "spa.benchmarks", "run", "bbh", "--data", str(hub)]
    command += ["--settings", "llada", "--cache", "spa", "--literal", "--shots", "0"]
    command += [
        "--option",
        "gen_length=32",
        "--option",
        "block_length=16",
        "--out",
        str(hub / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "1 of 27 tasks at hand" in done.stdout
    empty = subprocess.run(
        [*command[:5], "--data", str(hub / "empty"), "--settings", "llada"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert empty.returncode == 1
    assert empty.stderr.strip().splitlines()[-1].startswith("spa.benchmarks: bbh is not in")
