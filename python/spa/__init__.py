"""Diffusion language models on CPUs, built around SPA-Cache.

>>> import spa
>>> model = spa.Model()                       # the model compiled in; or spa.Model("model.gguf")
>>> print(model.generate("not ( True and False ) is").text)
"""

import json as _json

from ._spa import (
    Attention,
    CompareRow,
    Error,
    Layer,
    Likelihood,
    Plan,
    Question,
    Score,
    Step,
    TokenLikelihood,
    version as __version__,
)
from . import _spa
from .model import Model
from .policy import CachePolicy, register
from .results import Comparison, Evaluation, Frame, Result

__all__ = [
    "Attention",
    "CachePolicy",
    "CompareRow",
    "Comparison",
    "Error",
    "Evaluation",
    "Frame",
    "Layer",
    "Likelihood",
    "Model",
    "Plan",
    "Question",
    "Result",
    "Score",
    "Step",
    "TokenLikelihood",
    "__version__",
    "options",
    "register",
]

Error.__module__ = "spa"


def options() -> dict:
    """Every decoding and cache option, as `spa options --json` prints them."""
    return _json.loads(_spa.options())


def __getattr__(name: str):
    if name == "serve_on_ray":  # needs Ray
        from .cluster import serve_on_ray

        return serve_on_ray
    raise AttributeError(f"module 'spa' has no attribute {name!r}")
