"""Runs one benchmark: lm-eval asks and scores, the engine answers, the sandbox executes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

from .. import sandbox
from .._spa import Error, version
from . import data, settings

_CODE = ("mbpp", "humaneval")
_GROUPS = {"bbh": "bbh_cot_fewshot_", "mmlu_pro": "mmlu_pro_", "minerva_math": "minerva_math_"}
# What lm-eval's code tasks try when they are loaded.
_TRIAL = "assert add(2, 3)==5"


@dataclasses.dataclass(frozen=True)
class Run:
    benchmark: str
    data: str
    family: str = "llada"  # whose settings
    model: str | None = None  # None: the model compiled in
    cache: str = "spa"  # "spa" alone: as the paper ran it
    literal: bool = False  # take the cache as it is written
    shots: int | None = None  # None: the paper's, as the next ones
    batch: int | None = None
    decode: dict = dataclasses.field(default_factory=dict)
    limit: int | None = None  # questions of each task
    threads: int = 0
    out: str = "benchmarks"

    @property
    def setting(self) -> settings.Setting:
        return settings.FAMILIES[self.family].benchmarks[self.benchmark]

    @property
    def spec(self) -> str:
        if self.literal:
            return self.cache
        return settings.paper_cache(self.cache, self.family, self.benchmark)

    @property
    def options(self) -> dict[str, Any]:
        family = settings.FAMILIES[self.family]
        lengths = {
            "gen_length": self.setting.gen_length,
            "block_length": self.setting.block_length,
        }
        chosen = {**family.decode, **lengths, **self.decode}
        chosen["block_length"] = min(int(chosen["block_length"]), int(chosen["gen_length"]))
        return chosen

    def describe(self) -> dict[str, Any]:
        """All that decides the answers."""
        return {
            "spa": version,
            "benchmark": self.benchmark,
            "task": self.setting.task,
            "model": self.model or "",
            "cache": self.spec,
            "decode": {name: str(value) for name, value in sorted(self.options.items())},
            "shots": self.setting.shots if self.shots is None else self.shots,
            "chat": self.setting.chat,
        }

    @property
    def folder(self) -> pathlib.Path:
        """Its own for all that decides the answers, so that runs never mix."""
        key = json.dumps([self.describe(), self.limit, os.path.abspath(self.data)], sort_keys=True)
        name = re.sub(r"[^a-z0-9]+", "-", f"{self.benchmark}-{self.cache}".lower()).strip("-")
        return pathlib.Path(self.out) / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


class _CodeEval:
    """Stands for Hugging Face's metric `code_eval`, which lm-eval's code tasks call: the same
    programs, run in the sandbox."""

    limits = sandbox.Limits(seconds=10)

    def __init__(self) -> None:
        self.verdicts: list[str] = []

    def compute(self, references: list[str], predictions: list[list[str]], k: list[int]):
        if list(k) != [1]:
            raise Error("the sandboxed code_eval computes pass@1 only")
        shares = []
        for test, candidates in zip(references, predictions, strict=True):
            verdicts = sandbox.run_all(
                [f"{candidate}\n{test}" for candidate in candidates], self.limits
            )
            if test != _TRIAL:
                self.verdicts += [verdict.outcome for verdict in verdicts]
            shares.append(sum(verdict.passed for verdict in verdicts) / len(verdicts))
        return {"pass@1": sum(shares) / len(shares)}, {}


@functools.cache
def _code_eval() -> _CodeEval:
    """One for the process: lm-eval's tasks keep the one they were loaded with."""
    return _CodeEval()


@contextlib.contextmanager
def _sandboxed() -> Iterator[_CodeEval]:
    """lm-eval's code tasks execute in the sandbox, and without one nothing."""
    import evaluate

    metric = _code_eval()
    metric.verdicts.clear()
    with mock.patch.object(evaluate, "load", lambda name, *a, **k: metric):
        yield metric


def _lm(run: Run):
    """The engine as lm-eval sees it; each answer is stored as soon as it is there."""
    from ..lm_eval import SpaLM

    batch = run.batch or settings.FAMILIES[run.family].batch
    return SpaLM(
        pretrained=run.model, threads=run.threads, cache=run.spec, batch_size=batch, **run.options
    )


@functools.cache
def _manager():
    """lm-eval's tasks; finding them takes seconds."""
    from lm_eval.tasks import TaskManager

    return TaskManager()


def _tasks(run: Run, manager) -> tuple[list[str], int]:
    """The tasks whose data is at hand, and how many there are in all."""
    name = run.setting.task
    if name not in _GROUPS:
        return [name], 1
    members = sorted(
        task
        for task in manager.all_subtasks
        if task.startswith(_GROUPS[name]) and not task.endswith("500")
    )
    if name == "mmlu_pro":  # one file for all subjects
        return [name], 1
    hub = {"bbh": "SaylorTwift/bbh", "minerva_math": "EleutherAI/hendrycks_math"}[name]
    present = [m for m in members if "test" in data.splits(run.data, hub, m[len(_GROUPS[name]) :])]
    if not present:
        raise data.missing(run.data, hub)
    return ([name], 1) if len(present) == len(members) else (present, len(members))


def score(run: Run) -> dict[str, Any]:
    """Runs a benchmark, or goes on with it. Writes results.json and samples.jsonl into its folder
    and returns the former."""
    done = run.folder / "results.json"
    if done.is_file():
        return json.loads(done.read_text())
    data.check(run.data, run.benchmark)
    if run.benchmark in _CODE:
        sandbox.check()
    try:
        import lm_eval
    except ModuleNotFoundError as error:
        raise Error(
            f"the benchmarks need lm-eval ({error.name} is missing): pip install "
            "'spa-cpp[benchmarks]'"
        ) from error

    described = run.describe()
    if run.benchmark == "gsm8k" and run.setting.task == "gsm8k" and described["shots"]:
        if "train" not in data.splits(run.data, "openai/gsm8k", "main"):
            raise data.missing(
                run.data, "openai/gsm8k", f"gsm8k's split train, for {described['shots']} shots,"
            )
    # The random choices of a task are lm-eval's, from its own seeds.
    with data.local(run.data), _sandboxed() as code:
        manager = _manager()
        tasks, of = _tasks(run, manager)
        run.folder.mkdir(parents=True, exist_ok=True)
        result = lm_eval.simple_evaluate(
            model=_lm(run),
            tasks=tasks,
            num_fewshot=described["shots"],
            limit=run.limit,
            apply_chat_template=run.setting.chat,
            fewshot_as_multiturn=run.setting.chat,
            task_manager=manager,
            use_cache=str(run.folder / "answers"),
            bootstrap_iters=0,
            log_samples=True,
            confirm_run_unsafe_code=True,  # in the sandbox
        )
    samples = result.pop("samples")
    summary = {
        "settings": described,
        "limit": run.limit,
        "tasks": len(tasks),
        "tasks_in_all": of,
        "lm_eval": importlib.metadata.version("lm_eval"),
        "versions": result["versions"],
        "scores": _scores(run, result, tasks != [run.setting.task]),
        "speed": result["config"].get("spa", {}),
        "n": {task: counts["effective"] for task, counts in result["n-samples"].items()},
    }
    if run.benchmark in _CODE:
        summary["verdicts"] = dict(collections.Counter(code.verdicts))
    _write(run.folder / "samples.jsonl", "".join(_lines(samples)))
    _write(done, json.dumps(summary, indent=1) + "\n")
    return summary


def _lines(samples: dict[str, list[dict]]) -> Iterator[str]:
    for task, rows in samples.items():
        for row in rows:
            yield json.dumps({"task": task, **row}, default=str) + "\n"


def _scores(run: Run, result: dict, apart: bool) -> dict[str, dict[str, float | None]]:
    """Each metric and filter of the benchmark, with its standard error. Where only some tasks of a
    group are at hand: their mean, weighted by size as lm-eval does it."""
    if not apart:
        return _metrics(result["results"][run.setting.task])
    sizes = {task: counts["effective"] for task, counts in result["n-samples"].items()}
    total = sum(sizes.values())
    each = {task: _metrics(result["results"][task]) for task in sizes}
    mean: dict[str, dict[str, float | None]] = {}
    for name in next(iter(each.values())):
        value = sum(each[task][name]["value"] * sizes[task] for task in sizes) / total
        mean[name] = {"value": value, "stderr": None}
    return {**mean, **{f"{t}/{name}": v for t in each for name, v in each[t].items()}}


def _metrics(row: dict[str, Any]) -> dict[str, dict[str, float | None]]:
    found = {}
    for key, value in row.items():
        metric, _, named = key.partition(",")
        if not named or metric.endswith("_stderr") or not isinstance(value, (int, float)):
            continue
        error = row.get(f"{metric}_stderr,{named}")
        known = float(error) if isinstance(error, (int, float)) and not math.isnan(error) else None
        name = metric if named == "none" else f"{metric} ({named})"
        found[name] = {"value": float(value), "stderr": known}
    return found


def _write(path: pathlib.Path, text: str) -> None:
    """Whole or not at all."""
    aside = path.with_suffix(".part")
    with open(aside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
