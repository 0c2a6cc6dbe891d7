"""Many machines answer one file of prompts or questions, through Ray.

    python -m spa.cluster generate --prompts prompts.jsonl --out answers.jsonl
    python -m spa.cluster evaluate --task bbh --data navigate.json --out samples.jsonl

An actor on each machine (or on each --cores cores) loads the model once. The driver hands out small
portions and is the only writer: a portion's records are appended and on disk before the next one is
given. A portion whose machine died is given to another; a driver that was killed goes on where its
file ends. Answers do not depend on who gives them, so they are those of one process.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import dataclasses
import fcntl
import hashlib
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ._spa import Error, version
from .model import Model


def _ray():
    try:
        import ray
    except ModuleNotFoundError as error:
        raise Error("this needs Ray: pip install 'spa-cpp[ray]'") from error
    return ray


# ---- records


class Records:
    """A JSONL file: the settings of the work, the model's fingerprint, then a record for each
    finished item, by its id."""

    def __init__(self, path: str | os.PathLike, settings: Mapping[str, Any]):
        self.path = pathlib.Path(path)
        self.done: dict[str, dict] = {}
        self.model: str | None = None
        self._file = open(self.path, "a+b")  # noqa: SIM115  closed by close()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise Error(f"another run is writing {self.path}") from None
        try:
            self._read(json.loads(json.dumps(settings)))
        except BaseException:
            self.close()
            raise

    def _read(self, settings: dict) -> None:
        self._file.seek(0)
        whole = 0  # bytes of complete lines; what a killed driver left half written is dropped
        for number, line in enumerate(self._file):
            if not line.endswith(b"\n"):
                break
            try:
                record = json.loads(line)
            except ValueError as error:
                raise Error(f"{self.path}, line {number + 1} is not JSON: {error}") from error
            if number == 0:
                if record.get("settings") != settings:
                    raise Error(
                        f"{self.path} belongs to other settings or other data; choose another file"
                    )
            elif "model" in record:
                self.model = record["model"]
            else:
                self.done[record["id"]] = record
            whole += len(line)
        self._file.truncate(whole)
        if whole == 0:
            self._write([{"settings": settings}])

    def _write(self, records: Iterable[dict]) -> None:
        self._file.write(
            "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records).encode()
        )
        self._file.flush()
        os.fsync(self._file.fileno())

    def check_model(self, fingerprint: str) -> None:
        """Answers of different models never mix."""
        if self.model is None:
            self._write([{"model": fingerprint}])
            self.model = fingerprint
        if self.model != fingerprint:
            raise Error(f"a machine has a different model than {self.path} was started with")

    def add(self, records: Sequence[dict]) -> None:
        for record in records:
            if record["id"] in self.done:
                raise AssertionError(f"{record['id']} was answered twice")
        self._write(records)
        self.done.update((record["id"], record) for record in records)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- work


@dataclasses.dataclass(frozen=True)
class Work:
    """What an actor needs to know, and what decides the answers."""

    kind: str  # generate or evaluate
    model: str | None = None
    kv: str = "auto"
    cache: str | None = None
    options: dict = dataclasses.field(default_factory=dict)
    raw: bool = False
    task: dict = dataclasses.field(default_factory=dict)  # evaluate: how questions are read


@dataclasses.dataclass(frozen=True)
class Item:
    id: str
    row: Any  # generate: a prompt; evaluate: a question as it stands in its file


class Worker:
    """Loads the model once and answers portions."""

    def __init__(self, work: Work, threads: int, batch: int):
        self.work, self.batch = work, batch
        self.model = Model(work.model, threads=threads, kv=work.kv)

    def fingerprint(self) -> str:
        return self.model.fingerprint

    def answer(self, items: Sequence[Item]) -> list[dict]:
        """A record for each item. An item the engine refuses gets its error as a record."""
        give = self._generate if self.work.kind == "generate" else self._evaluate
        try:
            return give(items)
        except Error as error:
            if len(items) == 1:
                return [{"id": items[0].id, "error": str(error)}]
            return [record for item in items for record in self.answer([item])]

    def _generate(self, items: Sequence[Item]) -> list[dict]:
        results = self.model.generate(
            [item.row for item in items],
            cache=self.work.cache,
            raw=self.work.raw,
            batch=self.batch,
            **self.work.options,
        )
        return [
            {
                "id": item.id,
                "text": result.text,
                "ended": result.ended,
                "prompt_tokens": int(result.prompt_tokens),
                "generated_tokens": int(result.generated_tokens),
                "steps": int(result.steps),
                "seconds": float(result.seconds),
                "rows_computed": int(result.rows_computed),
                "rows_total": int(result.rows_total),
            }
            for item, result in zip(items, results, strict=True)
        ]

    def _evaluate(self, items: Sequence[Item]) -> list[dict]:
        """The engine's own evaluation, on a file with these questions alone."""
        with tempfile.TemporaryDirectory() as folder:
            data, samples = pathlib.Path(folder, "data.json"), pathlib.Path(folder, "samples")
            rows = [item.row for item in items]
            if self.work.task["task"] == "bbh":
                data.write_text(json.dumps({"examples": rows}))
            else:
                data.write_text("".join(json.dumps(row) + "\n" for row in rows))
            self.model.evaluate(
                data,
                cache=self.work.cache,
                batch=self.batch,
                raw=self.work.raw,
                samples=samples,
                **self.work.task,
                **self.work.options,
            )
            records = []
            for line in samples.read_text().splitlines()[1:]:
                record = json.loads(line)
                record["id"] = items[int(record["id"].rpartition("/")[2])].id
                records.append(record)
        return sorted(records, key=lambda record: [item.id for item in items].index(record["id"]))


def _portions(items: Sequence[Item], size: int) -> deque[list[Item]]:
    return deque(list(items[start : start + size]) for start in range(0, len(items), size))


def run_here(work: Work, items: Sequence[Item], threads: int = 0, batch: int = 8) -> list[dict]:
    """The same work in this process: what a cluster's answers are compared with."""
    worker = Worker(work, threads, batch)
    return [record for some in _portions(items, batch) for record in worker.answer(some)]


def run(
    work: Work,
    items: Sequence[Item],
    records: Records,
    *,
    actors: int = 0,
    cores: int = 0,
    batch: int = 8,
    progress: Any = None,
) -> None:
    """Answers what is not in the records yet, on the cluster that Ray is connected to. 0 actors: as
    many as the cluster has room for; 0 cores: all cores of a machine."""
    ray = _ray()
    waiting = _portions([item for item in items if item.id not in records.done], batch)
    if not waiting:
        return
    nodes = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    if cores == 0:
        cores = int(min((c for c in nodes if c >= 1), default=1))
    if actors == 0:
        actors = max(1, sum(int(cpus // cores) for cpus in nodes))
    # Ray must not retry or restart: what was in flight is known here, and given out again here.
    remote = ray.remote(num_cpus=cores, max_restarts=0, max_task_retries=0)(Worker).options(
        scheduling_strategy="SPREAD"
    )
    lost = (
        ray.exceptions.RayActorError,
        ray.exceptions.NodeDiedError,
        ray.exceptions.ObjectLostError,
    )
    busy: dict[Any, tuple[Any, list[Item]]] = {}  # what an actor does: nothing means it is starting

    def start() -> None:
        actor = remote.remote(work, cores, batch)
        busy[actor.fingerprint.remote()] = (actor, [])

    for _ in range(min(actors, len(waiting))):
        start()
    try:
        while waiting or any(portion for _, portion in busy.values()):
            finished, _ = ray.wait(list(busy), num_returns=1)
            actor, portion = busy.pop(finished[0])
            try:
                value = ray.get(finished[0])
            except lost as error:
                if not portion and "creation task" in str(error):  # the model cannot be loaded
                    raise Error(_last_line(error)) from None
                if portion:
                    waiting.appendleft(portion)
                with contextlib.suppress(Exception):
                    ray.kill(actor)  # it may only have been out of reach
                if progress:
                    progress(f"an actor is lost, its {len(portion)} items are given out again")
                start()  # it waits for room if there is none
                continue
            except ray.exceptions.RayTaskError as error:
                raise Error(_last_line(error)) from None
            if portion:
                records.add(value)
                if progress:
                    at_work = 1 + sum(1 for _, others in busy.values() if others)
                    progress(f"{len(records.done)} of {len(items)}, {at_work} at work")
            else:
                records.check_model(value)
            if waiting:
                portion = waiting.popleft()
                busy[actor.answer.remote(portion)] = (actor, portion)
            else:
                ray.kill(actor)
    finally:
        for actor, _ in busy.values():
            with contextlib.suppress(Exception):
                ray.kill(actor)


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


# ---- files


def prompts(path: str | os.PathLike) -> list[Item]:
    """A JSONL file: {"prompt": text} or {"messages": [...]}, with or without an "id"; or plain text
    with a prompt on each line."""
    items = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file):
            if not line.strip():
                continue
            name, row = str(number), line.rstrip("\n")
            if str(path).endswith((".jsonl", ".json")):
                try:
                    entry = json.loads(line)
                    row = entry["messages"] if "messages" in entry else entry["prompt"]
                except (ValueError, KeyError, TypeError):
                    raise Error(
                        f'{path}, line {number + 1}: expected {{"prompt": ...}} or '
                        '{"messages": [...]}'
                    ) from None
                name = str(entry.get("id", number))
            items.append(Item(name, row))
    return _checked(items, path)


def questions(paths: Sequence[str | os.PathLike], task: str, limit: int = 0) -> list[Item]:
    """The questions of files, each as it stands there; ids as `spa eval` gives them."""
    items = []
    for path in map(pathlib.Path, paths):
        with open(path, encoding="utf-8") as file:
            try:
                if task == "bbh":
                    rows = json.load(file)["examples"]
                else:
                    rows = [json.loads(line) for line in file if line.strip()]
            except (ValueError, KeyError, TypeError) as error:
                raise Error(f"{path} is not a file of task {task}: {error}") from error
        rows = rows[:limit] if limit else rows
        items += [Item(f"{path.stem}/{number}", row) for number, row in enumerate(rows)]
    return _checked(items, ", ".join(map(str, paths)))


def _checked(items: list[Item], where: Any) -> list[Item]:
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise Error(f"{where}: the id {item.id} appears twice")
        seen.add(item.id)
    if not items:
        raise Error(f"{where} is empty")
    return items


def settings(work: Work, items: Sequence[Item]) -> dict[str, Any]:
    """What decides the answers; the number of actors and the batch do not."""
    text = json.dumps([[item.id, item.row] for item in items], ensure_ascii=False)
    return {
        "spa": version,
        **dataclasses.asdict(work),
        "options": {name: str(value) for name, value in sorted(work.options.items())},
        "items": len(items),
        "hash": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


# ---- serving


def serve_on_ray(
    model: str | None = None,
    *,
    program: str = "spa",
    arguments: Sequence[str] = (),
    min_replicas: int = 1,
    max_replicas: int = 4,
    queue: int = 4,
    cores: int = 2,
    host: str = "127.0.0.1",
    port: int = 8000,
):
    """Deploys the OpenAI server as replicas of Ray Serve, each a `spa serve` of its own. Replicas
    are added while more than `queue` requests wait on one. Returns the deployment's handle."""
    _ray()
    from ray import serve

    serve.start(http_options={"host": host, "port": port})
    deployment = serve.deployment(
        name="spa",
        ray_actor_options={"num_cpus": cores},
        max_ongoing_requests=16 * queue,
        autoscaling_config={
            "min_replicas": min_replicas,
            "max_replicas": max_replicas,
            "target_ongoing_requests": queue,
        },
        health_check_period_s=5,
        health_check_timeout_s=30,
    )(_Replica)
    return serve.run(
        deployment.bind(program, model, cores, list(arguments)), name="spa", route_prefix="/"
    )


def _end_with_parent() -> None:
    """In a child, before it becomes another program: a replica that is killed leaves no server."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


class _Replica:
    """`spa serve` on a port of its own; requests and answers pass through unchanged."""

    def __init__(self, program: str, model: str | None, threads: int, arguments: list[str]):
        command = [program, "serve", "--port", "0", "--threads", str(threads), *arguments]
        command += ["-m", model] if model else []
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, preexec_fn=_end_with_parent
        )
        assert self._process.stdout is not None
        address = re.search(r"http://[^ ]+", self._process.stdout.readline())
        if not address:
            raise RuntimeError(f"{program} serve did not start; see this replica's log")
        self._url, self._session = address.group(), None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self._url + "/health", timeout=10) as answer:
                return answer.status == 200
        except OSError:
            return False

    def check_health(self) -> None:
        """Ray replaces a replica for which this raises."""
        if self._process.poll() is not None or not self._answers():
            raise RuntimeError("spa serve does not answer")

    async def __call__(self, request):
        import aiohttp
        from starlette.responses import StreamingResponse

        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        drop = {"host", "content-length", "transfer-encoding", "connection"}
        answer = await self._session.request(
            request.method,
            self._url + request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            headers={k: v for k, v in request.headers.items() if k.lower() not in drop},
            data=await request.body(),
        )

        async def pieces():
            try:
                async for piece in answer.content.iter_any():
                    yield piece
            finally:
                answer.close()  # a client that left ends the generation as well

        kept = {k: v for k, v in answer.headers.items() if k.lower() not in drop}
        return StreamingResponse(pieces(), answer.status, kept)

    def __del__(self):
        process = getattr(self, "_process", None)
        if process is not None:
            process.terminate()


# ---- the command line


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spa.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--model", help="file or folder, at the same path on every machine")
    shared.add_argument("--kv", default="auto")
    shared.add_argument("--cache", help="as in `spa generate --cache`, NAME:KEY=VALUE")
    shared.add_argument("--raw", action="store_true", help="ask without the chat template")
    shared.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    shared.add_argument("--out", required=True, help="JSONL file; an interrupted run resumes from it")
    shared.add_argument("--address", help="address of the cluster (default: a cluster on this machine alone)")
    shared.add_argument("--actors", type=int, default=0, help="number of actors; 0: as many as fit")
    shared.add_argument("--cores", type=int, default=0, help="cores per actor; 0: a whole machine")
    shared.add_argument("--batch", type=int, default=8, help="items per actor at a time")
    generate = commands.add_parser("generate", parents=[shared], help="answers to prompts")
    generate.add_argument("--prompts", required=True)
    evaluate = commands.add_parser("evaluate", parents=[shared], help="accuracy on questions")
    evaluate.add_argument("--data", required=True, nargs="+")
    evaluate.add_argument("--task", default="bbh", help="as in `spa eval`")
    evaluate.add_argument("--extract", default="")
    evaluate.add_argument("--question-field", default="question")
    evaluate.add_argument("--answer-field", default="answer")
    evaluate.add_argument("--limit", type=int, default=0, help="questions per file; 0: all")
    return parser


def _work(args: argparse.Namespace) -> tuple[Work, list[Item]]:
    options = {}
    for pair in args.option:
        name, equals, value = pair.partition("=")
        if not equals:
            raise Error(f"--option is NAME=VALUE, not {pair}")
        options[name.replace("-", "_")] = value
    model = os.path.abspath(args.model) if args.model else None
    work = Work(args.command, model, args.kv, args.cache, options, args.raw)
    if args.command == "generate":
        return work, prompts(args.prompts)
    task = {
        "task": args.task,
        "extract": args.extract,
        "question_field": args.question_field,
        "answer_field": args.answer_field,
    }
    return dataclasses.replace(work, task=task), questions(args.data, args.task, args.limit)


def _summary(work: Work, records: Iterable[dict]) -> Iterator[str]:
    records = list(records)
    good = [record for record in records if "error" not in record]
    yield f"{len(good)} answers, {len(records) - len(good)} refused"
    if work.kind == "evaluate" and good:
        n, share = len(good), sum(record["correct"] for record in good) / len(good)
        error = math.sqrt(share * (1 - share) / (n - 1)) if n > 1 else 0.0
        yield f"accuracy {100 * share:.2f}% ± {100 * error:.2f}"


def main() -> int:
    args = _arguments().parse_args()
    try:
        work, items = _work(args)
        ray = _ray()
        with Records(args.out, settings(work, items)) as records:
            already = len(records.done)
            if already:
                print(f"{already} of {len(items)} are in {args.out}", file=sys.stderr)
            if already < len(items):
                alone = {} if args.address else {"include_dashboard": False}
                ray.init(
                    args.address or "local", log_to_driver=False, logging_level="error", **alone
                )
                run(
                    work,
                    items,
                    records,
                    actors=args.actors,
                    cores=args.cores,
                    batch=args.batch,
                    progress=lambda line: print(line, file=sys.stderr, flush=True),
                )
            for line in _summary(work, records.done.values()):
                print(line)
            return int(any("error" in record for record in records.done.values()))
    except (Error, OSError) as error:
        print(f"spa.cluster: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    from spa.cluster import main  # so that actors find the classes in a module

    sys.exit(main())
