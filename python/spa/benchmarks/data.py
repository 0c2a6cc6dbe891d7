"""Local copies of the benchmarks' data sets, as the hub ships them or as their authors do.

FOLDER/NAME holds one data set; a split is one or more files, SPLIT.jsonl or
SPLIT-00000-of-00001.parquet, in a folder of the configuration's name where there is one.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import gzip
import inspect
import json
import os
import pathlib
from collections.abc import Iterator
from unittest import mock

from .._spa import Error


@dataclasses.dataclass(frozen=True)
class Source:
    folder: str
    hub: str  # its name on the hub
    # Files as authors publish them: a name pattern for each split.
    published: dict[str, str] = dataclasses.field(default_factory=dict)


SOURCES = [
    Source("gsm8k", "openai/gsm8k"),
    Source("gpqa", "Idavidrein/gpqa", {"train": "{config}.csv"}),
    Source("math", "EleutherAI/hendrycks_math"),
    Source("math500", "HuggingFaceH4/MATH-500"),
    Source("bbh", "SaylorTwift/bbh", {"test": "{config}.json"}),
    Source("mmlu_pro", "TIGER-Lab/MMLU-Pro"),
    Source("mbpp", "google-research-datasets/mbpp", {"all": "mbpp.jsonl"}),
    Source("humaneval", "openai/openai_humaneval", {"test": "HumanEval.jsonl.gz"}),
]
SPLITS = ("train", "validation", "test")
# MBPP is published as one file: its paper's splits, by task_id.
_MBPP = {"test": range(11, 511), "validation": range(511, 601), "train": range(601, 975)}


def source(hub: str) -> Source:
    for known in SOURCES:
        if hub.split("/")[-1] == known.hub.split("/")[-1]:
            return known
    raise Error(f"the benchmarks have no data set {hub}")


def read(path: pathlib.Path) -> list[dict]:
    """The rows of a file; its form is told by its name."""
    suffixes = path.suffixes
    try:
        if suffixes[-1] == ".parquet":
            import pyarrow.parquet

            return pyarrow.parquet.read_table(path).to_pylist()
        opened = gzip.open if suffixes[-1] == ".gz" else open
        with opened(path, "rt", encoding="utf-8", newline="") as file:
            if ".csv" in suffixes:
                return list(csv.DictReader(file))
            if ".json" in suffixes:
                rows = json.load(file)
                return rows["examples"] if isinstance(rows, dict) else rows
            return [json.loads(line) for line in file if line.strip()]
    except (OSError, ValueError, KeyError) as error:
        raise Error(f"{path} cannot be read: {error}") from error


def splits(folder: str | os.PathLike, hub: str, config: str | None) -> dict[str, list[dict]]:
    """The splits of a data set that are at hand."""
    where = source(hub)
    root = pathlib.Path(folder) / where.folder
    found: dict[str, list[dict]] = {}
    places = [root / config] if config else []
    # Where a configuration has a folder, others' files are not its own.
    places = [p for p in places if p.is_dir()] or [
        root,
        root / "data",
        root / where.hub.split("/")[-1],
    ]
    for split in SPLITS:
        for place in places:
            files = sorted(_files(place, split))
            if files:
                found[split] = [row for file in files for row in read(file)]
                break
    for split, pattern in where.published.items():
        path = root / pattern.format(config=config)
        if split not in found and path.is_file():
            rows = read(path)
            if split == "all":
                for name, ids in _MBPP.items():
                    found.setdefault(name, [row for row in rows if row["task_id"] in ids])
            else:
                found[split] = rows
    return found


def _files(place: pathlib.Path, split: str) -> Iterator[pathlib.Path]:
    if not place.is_dir():
        return
    for path in place.iterdir():
        name, _, kind = path.name.partition(".")
        if kind in ("parquet", "jsonl", "jsonl.gz", "json", "csv"):
            if name == split or name.startswith(split + "-"):
                yield path


def missing(folder: str | os.PathLike, hub: str, what: str = "") -> Error:
    where = source(hub)
    place = pathlib.Path(folder) / where.folder
    return Error(
        f"{what or where.folder} is not in {place}: put the hub's {where.hub} there (parquet or "
        f"JSONL): hf download --repo-type dataset {where.hub} --local-dir {place}"
    )


def check(folder: str | os.PathLike, benchmark: str) -> None:
    """Says at once that a benchmark has no data: finding lm-eval's tasks takes long."""
    if not (pathlib.Path(folder) / benchmark).is_dir():
        raise missing(folder, next(known.hub for known in SOURCES if known.folder == benchmark))


@contextlib.contextmanager
def local(folder: str | os.PathLike) -> Iterator[None]:
    """lm-eval's tasks read their data from this folder, not from the network."""
    import datasets

    def load(path: str, name: str | None = None, **_) -> datasets.DatasetDict:
        found = splits(folder, path, name)
        if not found:
            raise missing(folder, path, " ".join(filter(None, [source(path).folder, name])))
        found.setdefault("train", [])  # a task without shots asks for their split all the same
        return datasets.DatasetDict(
            {split: datasets.Dataset.from_list(rows) for split, rows in found.items()}
        )

    # GPQA's task shuffles the choices whenever its questions are read: once is enough.
    mapped: dict[tuple[str, str], datasets.Dataset] = {}
    original = datasets.Dataset.map

    def map_once(self, function, *args, **kwargs):
        if not inspect.isfunction(function):  # what `filter` makes of its condition
            return original(self, function, *args, **kwargs)
        key = (self._fingerprint, f"{function.__module__}.{function.__qualname__}")
        if key not in mapped:
            mapped[key] = original(self, function, *args, **kwargs)
        return mapped[key]

    with (
        mock.patch.object(datasets, "load_dataset", load),
        mock.patch.object(datasets.Dataset, "map", map_once),
    ):
        yield
