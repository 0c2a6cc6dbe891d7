"""Compares the engine with PyTorch on published BBH questions: same tokens up to the end of the answer, in float32.

PyTorch decodes in batches for speed; a question that differs is decoded again alone, in float32 and float64, because padding
changes rounding and a near tie may then fall either way.
"""
import argparse
import json
import os
import subprocess
import tempfile

import torch

import tasks
from evaluate import load, published
from model import MiniDLM, generate
from settings import BLOCK, CANVAS
from tokenizer import Tokenizer


def engine(spa, gguf, file, count):
    with tempfile.TemporaryDirectory() as folder:
        samples = os.path.join(folder, "samples.jsonl")
        subprocess.run([spa, "eval", "-m", gguf, "--task", "bbh", "--data", file, "--limit", str(count), "--batch", "8",
                        "--cache", "none", "--kv", "f32", "--samples", samples], check=True, capture_output=True)
        with open(samples) as f:
            lines = [json.loads(line) for line in f][1:]
    return [s["ids"] for s in sorted(lines, key=lambda s: int(s["id"].split("/")[-1]))]


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("run", help="folder of a training run with best.pt")
    ap.add_argument("gguf")
    ap.add_argument("--family", default="llada")
    ap.add_argument("--bbh", required=True)
    ap.add_argument("--spa", default="build/release/spa")
    ap.add_argument("--count", type=int, default=100)
    a = ap.parse_args()
    torch.set_num_threads(1)
    tok = Tokenizer(os.path.join(a.run, "tokenizer.json"), a.family)
    model, _ = load(os.path.join(a.run, "best.pt"))
    exact = MiniDLM(model.c, model.vocab).double()
    exact.load_state_dict(model.state_dict())
    ends = tok.pad, tok.special[tok.family["end"]]

    def answer(ids):
        stop = next((i for i, t in enumerate(ids) if t in ends), len(ids))
        return ids[:stop + 1]

    for task in tasks.TASKS:
        ours = engine(a.spa, a.gguf, os.path.join(a.bbh, task + ".json"), a.count)
        prompts = [tok.prompt(q) for q, _ in published(a.bbh, task, a.count)]
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        same = alone = ties = 0
        for i in range(0, len(order), 25):
            part = order[i:i + 25]
            for j, ids in zip(part, generate(model, [prompts[k] for k in part], CANVAS, BLOCK, tok.mask, tok.pad)):
                if answer(ids) == answer(ours[j]):
                    same += 1
                    continue
                args = [prompts[j]], CANVAS, BLOCK, tok.mask, tok.pad
                single, double = generate(model, *args)[0], generate(exact, *args)[0]
                alone += answer(single) == answer(ours[j])
                ties += answer(single) != answer(ours[j]) and answer(single) != answer(double)
        print(f"{task}: {len(prompts)} questions, {same} equal in a batch, {alone} more alone, {ties} ties (float32 and "
              f"float64 disagree), {len(prompts) - same - alone - ties} different", flush=True)


if __name__ == "__main__":
    main()
