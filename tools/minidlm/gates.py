"""The gates a deep model has to pass before caches are compared on it, measured in PyTorch on held-out generated problems.

1. Accuracy without a cache, in blocks and with the whole canvas as one block.
2. Accuracy with a plain dual cache (Fast-dLLM): at the start of a block every row is computed; within the block only its
   rows are, against the keys and values of all other rows as they were.
3. Drift per layer without a cache: 1 - cosine of a row's layer input between adjacent steps, mean over the canvas.
"""
import argparse
import json
import os
import random

import torch
import torch.nn.functional as F

import evaluate
import puzzles
import settings
from model import rms_norm, rope
from tokenizer import Tokenizer


def layer(blk, x, cos, sin, mask, store, at):
    """One layer for the rows `at` (a slice) with keys and values of all rows in store, which it updates."""
    b, n, d = x.shape
    c, a = blk.c, rms_norm(x, blk.attn_norm, blk.c["eps"])
    bias = (blk.bq, blk.bk, blk.bv) if c["family"] == "dream" else (None, None, None)
    q, k, v = (F.linear(a, w, z).view(b, n, -1, blk.hd).transpose(1, 2)
               for w, z in zip((blk.wq, blk.wk, blk.wv), bias))
    q, k = rope(q, cos[at], sin[at]), rope(k, cos[at], sin[at])
    if store:
        store[0][:, :, at], store[1][:, :, at] = k, v
    else:
        store += [k.clone(), v.clone()]
    k, v = store
    g = c["n_heads"] // c["n_kv_heads"]
    if g > 1:
        k, v = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
    s = (q * blk.hd ** -0.5) @ k.transpose(-1, -2)
    if mask is not None:
        s = s + mask
    x = x + F.linear((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d), blk.wo)
    a = rms_norm(x, blk.ff_norm, c["eps"])
    return x + F.linear(F.silu(F.linear(a, blk.gate)) * F.linear(a, blk.up), blk.down)


@torch.no_grad()
def decode(model, prompts, gen, block, tok, dual=False, drift=None):
    """Greedy, one token per step (Dream: the least entropy first), all tokens of the canvas."""
    b, p, dream = len(prompts), max(map(len, prompts)), model.c["family"] == "dream"
    n = p + gen
    x = torch.full((b, n), tok.mask)
    mask = torch.zeros(b, 1, 1, n)
    for i, ids in enumerate(prompts):
        x[i, :p - len(ids)] = tok.pad
        mask[i, 0, 0, :p - len(ids)] = -1e9
        x[i, p - len(ids):p] = torch.tensor(ids)
    cos, sin, last = model.cos[:n], model.sin[:n], None
    for start in range(p, n, block):
        end, store = start + block, None
        while bool((x[:, start:end] == tok.mask).any()):
            fresh = store is None or not dual
            at = slice(0, n) if fresh else slice(start - dream, end)
            if fresh:
                store = [[] for _ in model.blocks]
            h, inputs = model.wte[x[:, at]], []
            for i, blk in enumerate(model.blocks):
                inputs.append(h[:, p:])
                h = layer(blk, h, cos, sin, mask, store[i], at)
            if drift is not None:
                if last is not None:
                    drift.append(torch.stack([(1 - F.cosine_similarity(u, w, dim=-1)).mean() for u, w in zip(inputs, last)]))
                last = inputs
            first = start - at.start - dream
            h = h[:, first:first + block]
            prob = F.linear(rms_norm(h, model.norm, model.c["eps"]), model.head).softmax(-1)
            best, t = prob.max(-1)
            score = (prob * (prob + 1e-10).log()).sum(-1) if dream else best
            score = score.masked_fill(x[:, start:end] != tok.mask, float("-inf"))
            pick = score.argmax(-1, keepdim=True)
            x[:, start:end] = x[:, start:end].scatter(1, pick, t.gather(1, pick))
    return x[:, p:].tolist()


def measure(model, tok, task, count, gen, block, dual=False, drift=None, seed=evaluate.HELD_OUT_SEED, wrong=0, batch=32):
    rng = random.Random(seed)
    pairs = [puzzles.sample(rng, task) for _ in range(count)]
    pairs.sort(key=lambda x: len(tok.prompt(x[0])))
    right = 0
    for i in range(0, count, batch):
        part = pairs[i:i + batch]
        for (q, a), ids in zip(part, decode(model, [tok.prompt(q) for q, _ in part], gen, block, tok, dual, drift)):
            ok = tok.answer(ids) == a.split("Answer: ")[-1].strip()
            right += ok
            if not ok and wrong:
                wrong -= 1
                print(f"  {q!r}\n    want {a!r}\n    got  {tok.decode(ids).split(tok.family['end'])[0]!r}", flush=True)
    return right


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("run", help="folder of a training run")
    ap.add_argument("--family", default="llada")
    ap.add_argument("--count", type=int, default=32, help="problems per task")
    ap.add_argument("--tasks", default=",".join(puzzles.DEEP))
    ap.add_argument("--gen", type=int, default=settings.DEEP_CANVAS)
    ap.add_argument("--blocks", default=f"16,{settings.DEEP_CANVAS}", help="block lengths")
    ap.add_argument("--cache", default="none,dual")
    ap.add_argument("--drift", action="store_true")
    ap.add_argument("--seed", type=int, default=evaluate.HELD_OUT_SEED)
    ap.add_argument("--wrong", type=int, default=0)
    a = ap.parse_args()
    torch.set_num_threads(1)
    tok = Tokenizer(os.path.join(a.run, "tokenizer.json"), a.family)
    model, s = evaluate.load(evaluate.weights(a.run))
    print("step", s["step"], "canvas", a.gen, "problems per task", a.count, flush=True)
    blocks, caches, sums, drifts = [int(x) for x in a.blocks.split(",")], a.cache.split(","), {}, []
    for task in a.tasks.split(","):
        line = []
        for block in blocks:
            for cache in caches:
                drift = [] if a.drift and cache == "none" else None
                r = measure(model, tok, task, a.count, a.gen, block, cache == "dual", drift, a.seed, a.wrong)
                sums.setdefault((block, cache), []).append(r / a.count)
                line.append(f"{cache}/{block} {100 * r / a.count:.1f}")
                drifts += drift or []
        print(f"{task:40} " + "  ".join(line), flush=True)
    print("all".ljust(40), "  ".join(f"{c}/{b} {100 * sum(v) / len(v):.1f}" for (b, c), v in sums.items()), flush=True)
    if drifts:
        d = torch.stack(drifts).mean(0).tolist()
        print("drift", json.dumps([round(v, 4) for v in d]), f"peak/first {max(d) / d[0]:.2f} peak/last {max(d) / d[-1]:.2f}")


if __name__ == "__main__":
    main()
