"""The paper's settings: its appendix "Experimental Details", and where that is silent the options
of the authors' evaluation scripts (wenhao728/spa-cache), which produced its numbers."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Setting:
    """One benchmark with one family of models."""

    task: str  # lm-eval's name
    shots: int
    gen_length: int
    block_length: int
    chat: bool  # few-shot examples as turns of a conversation; otherwise plain text
    refresh: tuple[int, int]  # SPA-Cache: steps between refreshes of all rows and of the answer's
    rho_min: float = 1 / 16  # SPA-Cache: the smallest budget of a layer


@dataclasses.dataclass(frozen=True)
class Family:
    rank: int  # SPA-Cache: of the singular proxy
    batch: int
    decode: dict  # options of all its benchmarks
    benchmarks: dict[str, Setting]


FAMILIES = {
    "llada": Family(
        rank=128,
        batch=16,
        decode={"temperature": 0, "remasking": "low_confidence"},
        benchmarks={
            "gsm8k": Setting("gsm8k", 4, 256, 8, True, (50, 7)),
            "gpqa": Setting("gpqa_main_generative_n_shot", 5, 128, 64, True, (50, 6)),
            "math": Setting("minerva_math", 4, 256, 32, True, (50, 2)),
            "bbh": Setting("bbh", 3, 256, 256, True, (50, 6)),
            "mmlu_pro": Setting("mmlu_pro", 5, 256, 256, True, (50, 3), 0.125),
            "mbpp": Setting("mbpp", 3, 512, 32, True, (25, 4)),
            "humaneval": Setting("humaneval", 0, 512, 32, False, (50, 8), 0.2),
        },
    ),
    "dream": Family(
        rank=32,
        batch=4,
        decode={"temperature": 0.2, "top_p": 0.95, "remasking": "entropy", "alg_temp": 0},
        benchmarks={
            "gsm8k": Setting("gsm8k_cot", 8, 256, 256, False, (25, 2), 0.125),
            "gpqa": Setting("gpqa_main_generative_n_shot", 5, 256, 256, False, (16, 1), 0.2),
            "math": Setting("minerva_math", 4, 256, 256, False, (50, 1)),
            "bbh": Setting("bbh", 3, 256, 256, False, (32, 2)),
            "mmlu_pro": Setting("mmlu_pro", 5, 256, 256, False, (16, 4)),
            "mbpp": Setting("mbpp", 3, 256, 256, False, (8, 3), 0.125),
            "humaneval": Setting("humaneval", 0, 256, 256, False, (50, 3)),
        },
    ),
}
BENCHMARKS = tuple(FAMILIES["llada"].benchmarks)


@dataclasses.dataclass(frozen=True)
class Method:
    """A row of a table: a cache, and decoding options beside those of the benchmark."""

    name: str
    cache: str
    decode: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Table:
    caption: str
    families: tuple[str, ...]
    benchmarks: tuple[str, ...]
    methods: tuple[Method, ...]


_NONE = Method("none", "none")
_SPA = Method("SPA-Cache", "spa")
# Fast-dLLM needs blocks smaller than the canvas: 32 everywhere.
_FAST = Method("Fast-dLLM", "fast-dual", {"block_length": 32})
_PARALLEL = {"threshold": 0.9}
_MAIN = (_NONE, Method("dLLM-Cache", "dllm"), _FAST, _SPA)

# By what they show; the captions are ours.
TABLES = {
    "main": Table("Caches across seven benchmarks", ("llada", "dream"), BENCHMARKS, _MAIN),
    "llada-1.5": Table("The same on LLaDA-1.5", ("llada",), BENCHMARKS, _MAIN),
    "parallel": Table(
        "With parallel decoding, threshold 0.9",
        ("llada",),
        BENCHMARKS,
        (
            _NONE,
            Method("Fast-dLLM", "fast-dual", {"block_length": 32, **_PARALLEL}),
            Method("SPA-Cache", "spa", _PARALLEL),
        ),
    ),
    "others": Table(
        "Other caches",
        ("llada", "dream"),
        ("gsm8k", "mbpp"),
        (
            _NONE,
            Method("dKV-Cache", "dkv-decode"),
            Method("Elastic-Cache", "elastic"),
            Method("d2Cache", "d2"),
            _SPA,
        ),
    ),
    "identifiers": Table(
        "Identifiers, a quarter of the rows in every layer",
        ("llada",),
        ("gsm8k",),
        (
            _NONE,
            *(
                Method(name, f"spa:identifier={name}:rho=0.25")
                for name in ("query", "key", "value", "attn-input", "attn-output")
            ),
        ),
    ),
    "ablation": Table(
        "Identifier and budget",
        ("llada",),
        ("gsm8k",),
        (
            _NONE,
            Method("value, 25%", "spa:identifier=value:rho=0.25"),
            Method("singular, 25%", "spa:rho=0.25"),
            Method("singular, adaptive", "spa"),
            Method("singular, 16%", "spa:rho=0.16"),
        ),
    ),
    "ranks": Table(
        "Rank of the singular proxy",
        ("llada",),
        ("gsm8k",),
        (
            _NONE,
            Method("value", "spa:identifier=value:rho=0.25"),
            *(Method(f"rank {r}", f"spa:rank={r}:rho=0.25") for r in (512, 256, 128, 64, 32)),
        ),
    ),
}


def paper_cache(cache: str, family: str, benchmark: str) -> str:
    """SPA-Cache as the paper ran it: the authors' code (preset=reference) with the intervals and
    budgets of this benchmark, below the options already given. Other caches stay as they are."""
    name, _, given = cache.partition(":")
    if name != "spa":
        return cache
    setting = FAMILIES[family].benchmarks[benchmark]
    options = {
        "preset": "reference",
        "rank": str(FAMILIES[family].rank),
        "refresh-prompt": str(setting.refresh[0]),
        "refresh-gen": str(setting.refresh[1]),
    }
    chosen = dict(option.split("=", 1) for option in given.split(":") if "=" in option)
    if "rho" not in chosen:  # else the budget is the same in every layer
        options["rho-peak"] = "0.25"
        options["rho-min"] = f"{setting.rho_min:g}"
    options.update(chosen)
    return ":".join(["spa", *(f"{key}={value}" for key, value in options.items())])
