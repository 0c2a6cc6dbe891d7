"""Greedy decoding accuracy of a checkpoint: on held-out generated problems, or on the published BBH files (test only)."""
import argparse
import json
import os
import random

import torch

import tasks
from model import MiniDLM, generate
from tokenizer import Tokenizer

# Canvas per task: a multiple of 16 that holds the longest worked answer. 64 works for every task.
GEN = {"boolean_expressions": 48, "dyck_languages": 16}


HELD_OUT_SEED = 987654321            # training seeds are small numbers times 1000003 plus the step


def load(path, rounded=True):
    """The averaged weights, rounded to bf16 as they will be stored."""
    s = torch.load(path, map_location="cpu")
    m = MiniDLM(s["shape"], s["vocab"])
    m.load_state_dict(s["ema"])
    if rounded:
        with torch.no_grad():
            for p in m.parameters():
                p.copy_(p.to(torch.bfloat16).float())
    return m.eval(), s


def weights(run):
    """The chosen snapshot, or the last state of a run that is still going on."""
    best = os.path.join(run, "best.pt")
    return best if os.path.exists(best) else os.path.join(run, "ckpt.pt")


def generated(task, count):
    rng = random.Random(HELD_OUT_SEED)
    return [tasks.sample(rng, task) for _ in range(count)]


def published(folder, task, count=None):
    with open(os.path.join(folder, task + ".json")) as f:
        return [(e["input"], e["target"]) for e in json.load(f)["examples"]][:count]


def score(model, tok, pairs, gen_length, block_length=16, batch=25):
    """For each (question, answer) whether the decoded answer is right, and the decoded text."""
    order = sorted(range(len(pairs)), key=lambda i: len(tok.prompt(pairs[i][0])))
    out = [None] * len(pairs)
    for i in range(0, len(order), batch):
        part = order[i:i + batch]
        ids = generate(model, [tok.prompt(pairs[j][0]) for j in part], gen_length, block_length, tok.mask, tok.pad)
        for j, r in zip(part, ids):
            want = pairs[j][1].split("Answer: ")[-1].strip()
            out[j] = (tok.answer(r) == want, tok.decode(r).split(tok.family["end"])[0])
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("run", help="folder of a training run")
    ap.add_argument("--family", default="llada")
    ap.add_argument("--bbh", help="folder of BBH files; without it: held-out generated problems")
    ap.add_argument("--count", type=int, default=50)
    ap.add_argument("--tasks", default=",".join(tasks.TASKS))
    ap.add_argument("--gen", type=int, help="canvas; by default the one of the task")
    ap.add_argument("--block", type=int, default=16)
    ap.add_argument("--wrong", type=int, default=0, help="show this many wrong answers per task")
    a = ap.parse_args()
    torch.set_num_threads(1)
    tok = Tokenizer(os.path.join(a.run, "tokenizer.json"), a.family)
    model, s = load(weights(a.run))
    for task in a.tasks.split(","):
        pairs = published(a.bbh, task, a.count) if a.bbh else generated(task, a.count)
        res = score(model, tok, pairs, a.gen or GEN.get(task, 64), a.block)
        right = sum(r for r, _ in res)
        print(f"step {s['step']} {task} {right}/{len(res)} = {100 * right / len(res):.1f}%", flush=True)
        for (q, w), (ok, text) in [x for x in zip(pairs, res) if not x[1][0]][:a.wrong]:
            print(f"  {q!r}\n    want {w!r}\n    got  {text!r}", flush=True)


if __name__ == "__main__":
    main()
