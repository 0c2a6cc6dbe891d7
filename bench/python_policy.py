"""What a cache written in Python costs beside the same one built in.

    spa synth --shape llada-8b --layers 4 llada8b-4.gguf
    python bench/python_policy.py llada8b-4.gguf

Processor time of one thread per step, the first and dense one left out: both generations run step by
step in turn, so that a machine that slows down slows both; medians, and the part spent in the methods of
the Python class. Both compute the same rows and settle the same tokens, or this stops."""

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
        started = time.thread_time()
        try:
            return self._layer.proxies(rows)
        finally:
            self._spent[0] -= time.thread_time() - started


def timed(policy: type[spa.CachePolicy], spent: list[float]):
    """The class, with the time of its methods added up."""

    class Timed(policy):
        def begin_step(self, step):
            started = time.thread_time()
            rows = super().begin_step(step)
            spent[0] += time.thread_time() - started
            return rows

        def plan_layer(self, layer):
            started = time.thread_time()
            plan = super().plan_layer(Engine(layer, spent))
            spent[0] += time.thread_time() - started
            return plan

    return Timed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=384)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=16, help="after the first")
    args = parser.parse_args()
    model = spa.Model(args.model, threads=1)
    prompt = np.random.default_rng(0).integers(1, 1000, args.prompt)

    def begin(cache):
        frames = model.steps(prompt, cache=cache, gen_length=args.length, block_length=32)
        next(frames)
        return frames

    def step(frames):
        started = time.process_time()
        frame = next(frames)
        return frame, 1e3 * (time.process_time() - started)

    print("cache              built in    Python   difference       in its methods  (ms per step)")
    for policy, built_in in ((DualCache, "fast-dual"), (SpaCache, "spa:preset=paper")):
        spent = [0.0]
        theirs, mine = begin(built_in), begin(timed(policy, spent))
        times = []
        for _ in range(args.steps):
            spent[0] = 0.0
            (expected, a), (found, b) = step(theirs), step(mine)
            times.append((a, b, b - a, 1e3 * spent[0]))
            assert (found.ids == expected.ids).all()
            assert all((x == y).all() for x, y in zip(found.rows, expected.rows, strict=True))
        a, b, difference, methods = np.median(times, axis=0)
        print(
            f"{built_in:17}  {a:8.2f}  {b:8.2f}  {difference:6.2f} = {difference / a:6.2%}"
            f"  {methods:6.2f} = {methods / a:.2%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
