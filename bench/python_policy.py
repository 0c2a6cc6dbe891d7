"""What a cache written in Python costs beside the same one built in.

    spa synth --shape llada-8b --layers 4 llada8b-4.gguf
    python bench/python_policy.py llada8b-4.gguf

Milliseconds per step, the first and dense one left out. The built-in cache, the same once more, which
shows how far the machine's own noise reaches, and the one in Python run step by step in turn, each first
as often as the others. All compute the same rows and settle the same tokens, or this stops. Medians; the
differences are medians of the differences of one round, and `methods` is the time inside the Python
class's methods, less what the engine computes for them."""

import argparse
import pathlib
import sys
import time

import numpy as np

import spa

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples" / "python"))
from dual_cache import DualCache  # noqa: E402
from spa_cache import SpaCache  # noqa: E402


class Engine:
    """A layer as the policy sees it; the time the engine takes for proxies is not the policy's."""

    def __init__(self, layer, spent: list[float]):
        self._layer, self._spent = layer, spent

    def __getattr__(self, name):
        return getattr(self._layer, name)

    def proxies(self, rows):
        started = time.perf_counter()
        try:
            return self._layer.proxies(rows)
        finally:
            self._spent[0] -= time.perf_counter() - started


def timed(policy: type[spa.CachePolicy], spent: list[float]):
    """The class, with the time of its methods added up."""

    class Timed(policy):
        def begin_step(self, step):
            started = time.perf_counter()
            rows = super().begin_step(step)
            spent[0] += time.perf_counter() - started
            return rows

        def plan_layer(self, layer):
            started = time.perf_counter()
            plan = super().plan_layer(Engine(layer, spent))
            spent[0] += time.perf_counter() - started
            return plan

    return Timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=384)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=90, help="after the first")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    model = spa.Model(args.model, threads=args.threads)
    prompt = np.random.default_rng(0).integers(1, 1000, args.prompt)

    def begin(cache):
        frames = model.steps(prompt, cache=cache, gen_length=args.length, block_length=32)
        next(frames)
        return frames

    def step(frames):
        started = time.perf_counter()
        frame = next(frames)
        return frame, 1e3 * (time.perf_counter() - started)

    print(f"{'cache':17} {'built in':>9} {'again':>16} {'in Python':>16} {'methods':>16}")
    for policy, built_in in ((DualCache, "fast-dual"), (SpaCache, "spa:preset=paper")):
        spent = [0.0]
        caches = (built_in, built_in, timed(policy, spent))
        generations = [begin(cache) for cache in caches]
        times = []
        for i in range(args.steps):
            spent[0] = 0.0
            taken = {j: step(generations[j]) for j in np.roll(np.arange(3), i)}
            expected, found = taken[0][0], taken[2][0]
            assert (found.ids == expected.ids).all()
            assert all((x == y).all() for x, y in zip(found.rows, expected.rows, strict=True))
            a, again, b = (taken[j][1] for j in range(3))
            times.append((a, again - a, b - a, 1e3 * spent[0]))
        a, *others = np.median(times, axis=0)
        print(f"{built_in:17} {a:9.1f}", *(f"{ms:7.2f} = {ms / a:6.2%}" for ms in others), flush=True)


if __name__ == "__main__":
    main()
