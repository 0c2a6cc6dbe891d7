"""A cache in Python: subclass CachePolicy, give the class to `generate` or register it by name."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from . import _spa


class CachePolicy:
    """Chooses which rows a step recomputes; the engine does the rest. A sequence has a policy of
    its own. Rows are whole numbers in any order, or a mask of all rows. Matrices are views, valid
    during the call: copy what is kept.

    What holds for every cache is seen to by the engine: rows that were never computed are planned
    in every layer, rows whose logits are read are recomputed unless other rows reuse something.
    """

    #: What a row passes to the next layer if it is not recomputed: "nothing" (such rows end here,
    #: present through keys and values alone), "update" (its input plus its last update), "output".
    reuse: ClassVar[str] = "nothing"
    #: False: rows read in the last layer are always recomputed.
    reuse_in_last_layer: ClassVar[bool] = True
    #: The first layers whose queries are kept (spa.Plan's `queries`).
    query_layers: ClassVar[int] = 0
    #: Inputs of every layer are kept: a planned row that did not reach a layer starts from its own.
    keep_inputs: ClassVar[bool] = False
    #: Compute attention weights and call after_attention in every layer.
    attention_weights: ClassVar[bool] = False
    #: The options of the cache spa that give layer.proxies and layer.budget: "spa", "spa:rank=8".
    proxies: ClassVar[str | None] = None

    def begin_step(self, step: _spa.Step) -> Any:
        """The rows that enter the first layer."""
        return step.visible

    def plan_layer(self, layer: _spa.Layer) -> Any:
        """The rows that are recomputed in a layer, or a spa.Plan."""
        return layer.live

    def after_attention(self, attention: _spa.Attention) -> Any:
        """Which of the rows that attended run the rest of the layer; None: all."""
        return None

    def end_step(self, positions: np.ndarray, confidence: np.ndarray) -> None:
        """Tells the policy how sure the decoder was of the positions it read."""


_registered: dict[str, Any] = {}


def registered(name: str) -> Any:
    return _registered.get(name)


def register(name: str, cache: Callable[..., CachePolicy] | None = None) -> Any:
    """Makes a cache known by name: register("mine", Mine), or @spa.register("mine") before the
    class. The keyword arguments of the class are the cache's options ("mine:window=8")."""
    if cache is None:
        return lambda cache: register(name, cache)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise _spa.Error(f"a cache's name may have letters, digits, '.', '_' and '-' only, not {name!r}")
    parameters = inspect.signature(cache).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    for option, default in defaults.items():
        if default is inspect.Parameter.empty:
            raise _spa.Error(f"the option {option} of the cache {name} needs a default")

    def bind(given: dict[str, str]) -> Callable[[], CachePolicy]:
        arguments = {
            option.replace("-", "_"): _parse(name, option, text, defaults)
            for option, text in given.items()
        }
        return lambda: cache(**arguments)

    table = [(option.replace("_", "-"), str(value)) for option, value in defaults.items()]
    summary = (inspect.getdoc(cache) or "a cache in Python").split("\n")[0]
    _spa.register(name, summary, table, bind, _note(cache))
    _registered[name] = cache
    return cache


def _parse(name: str, option: str, text: str, defaults: dict[str, Any]) -> Any:
    default = defaults[option.replace("-", "_")]
    try:
        if isinstance(default, bool):
            return {"on": True, "off": False}[text]
        return type(default)(text) if isinstance(default, (int, float)) else text
    except (KeyError, ValueError):
        kind = "on or off" if isinstance(default, bool) else f"like {default!r}"
        raise _spa.Error(f"the {name} option {option} is {kind}, not '{text}'") from None


def _note(cache: Any) -> str:
    """Identifies a version of a cache in the records of an evaluation."""
    try:
        source = inspect.getsource(cache)
    except (OSError, TypeError):
        return "in Python"
    return "in Python, " + hashlib.sha256(source.encode()).hexdigest()[:8]
