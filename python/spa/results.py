"""Results of a model. They print well and render in notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _html, _spa

if TYPE_CHECKING:
    from .model import Model


def _record(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in dir(row) if not name.startswith("_")}


@dataclass(repr=False, eq=False)
class Frame:
    """The canvas after a step."""

    _model: Model
    step: int  #: 1 after the first
    ids: np.ndarray  #: [canvas] int32; open positions hold the mask
    settled: np.ndarray  #: [canvas] bool
    confidence: np.ndarray  #: [canvas] float32: of the positions this step looked at, else NaN
    rows: list[np.ndarray]  #: per layer the rows that were recomputed, counted from the prompt's start
    length: int  #: tokens settled from the answer's start on, without its end token
    ended: bool  #: nothing follows them

    @property
    def text(self) -> str:
        """The settled beginning of the answer."""
        return self._model.detokenize(self.ids[: self.length])

    def __repr__(self) -> str:
        rows = [len(layer) for layer in self.rows]
        return f"<spa.Frame step {self.step}: {self.settled.sum()} of {len(self.ids)} settled, rows {rows}>"

    def _repr_html_(self) -> str:
        notes = ["" if np.isnan(sure) else f"probability {sure:.2f}" for sure in self.confidence]
        shares = np.where(self.settled, 0.3, np.nan)
        return _html.canvas(self._model._texts(self.ids), shares, notes) + _html.caption(
            f"step {self.step}: {self.settled.sum()} of {len(self.ids)} settled"
        )


@dataclass(repr=False, eq=False)
class Result:
    """An answer, its cost, and how it was decoded. Holds no model, so it can be pickled."""

    _pieces: list[str]  # the text of each token, for the picture
    text: str  #: up to the first end token
    ids: np.ndarray  #: [canvas] int32
    ended: bool  #: by an end token, not by the canvas
    steps: int
    seconds: float  #: of the engine: its share of the steps it was in
    first_step_seconds: float
    prompt_tokens: int
    generated_tokens: int  #: without the end token
    rows_computed: int
    rows_total: int
    cache: str  #: exactly
    cache_bytes: int
    settled_at: np.ndarray  #: [canvas] int32: the step that settled each position; 0: none did
    confidence: np.ndarray  #: [canvas] float32: how sure the model was then
    rows: np.ndarray  #: [steps, layers] uint32: rows recomputed

    @property
    def rows_fraction(self) -> float:
        """Share of rows that were computed."""
        return self.rows_computed / self.rows_total if self.rows_total else 0.0

    @property
    def tokens_per_second(self) -> float:
        return self.generated_tokens / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return f"<spa.Result {text!r}: {self._summary()}>"

    def _summary(self) -> str:
        return (
            f"{self.generated_tokens} tokens in {self.seconds:.2f} s, {self.steps} steps, "
            f"{100 * self.rows_fraction:.1f}% of rows computed, cache {self.cache}"
        )

    def _repr_html_(self) -> str:
        at = np.where(self.settled_at > 0, self.settled_at / max(self.steps, 1), np.nan)
        notes = [
            f"step {step}, probability {sure:.2f}" if step else "open"
            for step, sure in zip(self.settled_at, self.confidence)
        ]
        return (
            _html.canvas(self._pieces, at, notes)
            + _html.caption("the darker, the later settled; ∎ ends the answer")
            + _html.heat_map(self.rows)
            + _html.caption(self._summary())
        )


class Evaluation:
    """Accuracy on files of questions: `scores`, one per file, and their `total`."""

    def __init__(self, result: _spa.EvalResult):
        self.scores: list[_spa.Score] = result.scores
        self.total: _spa.Score = result.total
        self.resumed: int = result.resumed
        self.settings: str = result.settings

    accuracy = property(lambda self: self.total.accuracy)

    def records(self) -> list[dict[str, Any]]:
        """The scores as plain dicts, as for pandas.DataFrame."""
        return [_record(score) for score in self.scores]

    def _table(self) -> list[list[str]]:
        scores = self.scores + ([self.total] if len(self.scores) > 1 else [])
        return [["data", "n", "correct", "accuracy", "tokens/s", "steps", "rows"]] + [
            [
                s.name,
                str(s.count),
                str(s.correct),
                f"{100 * s.accuracy:.2f}% ± {100 * s.standard_error:.2f}",
                f"{s.tokens_per_second:.1f}",
                f"{s.steps:.1f}",
                f"{100 * s.rows_fraction:.1f}%",
            ]
            for s in scores
        ]

    def __repr__(self) -> str:
        return _html.text_table(self._table())

    def _repr_html_(self) -> str:
        return _html.table(self._table())


class Comparison:
    """Caches side by side: a sequence of spa.CompareRow."""

    def __init__(self, rows: list[_spa.CompareRow], model: str, num_questions: int):
        self.rows = rows
        self.model = model
        self.num_questions = num_questions

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> _spa.CompareRow:
        return self.rows[index]

    def __iter__(self) -> Iterator[_spa.CompareRow]:
        return iter(self.rows)

    def records(self) -> list[dict[str, Any]]:
        """The rows as plain dicts, as for pandas.DataFrame."""
        return [_record(row) for row in self.rows]

    def report(self) -> str:
        """One HTML page with plots of quality against speed."""
        return _spa.compare_report(self.rows, self.model, self.num_questions)

    def _table(self) -> list[list[str]]:
        def optional(value: Any, text: str) -> str:
            return "-" if value is None else text.format(value)

        return [["cache", "rule", "tokens/s", "speedup", "steps", "rows", "agreement", "accuracy"]] + [
            [
                row.cache,
                row.rule,
                f"{row.tokens_per_second:.1f}",
                f"{row.speedup:.2f}x",
                f"{row.steps:.1f}",
                f"{100 * row.rows_fraction:.1f}%",
                f"{100 * row.agreement:.1f}%",
                optional(row.accuracy, "{:.1%}"),
            ]
            for row in self.rows
        ]

    def __repr__(self) -> str:
        return _html.text_table(self._table())

    def _repr_html_(self) -> str:
        return _html.table(self._table())
