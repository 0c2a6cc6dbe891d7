"""Trains the deep, narrow models: grown from a trained model, on the tasks of tasks.py and puzzles.py.

`--init` is models/minillada.gguf or a checkpoint. Each of its layers is followed by new layers whose outputs start at
zero, so that at the start the function is exactly the old one. The vocabulary is extended: old tokens keep their ids,
the special tokens move behind the new ones.
"""
import random

import torch
import torch.nn.functional as F

import grow
import puzzles
import settings
import tasks
import tokenizer
import train
from model import rms_norm, rope

WEIGHT = {"boolean_expressions": 0.1, "dyck_languages": 0.2, "web_of_lies": 0.1, "navigate": 0.1,
          "tracking_shuffled_objects_three_objects": 0.1, "object_counting": 0.2, "relay": 2.0, "sudoku": 1.5}


def extend_vocabulary(vocab, merges, samples=100):
    """One token for every word of the puzzles: what the old merges leave in pieces is merged from left to right."""
    rng, words = random.Random(3), {}
    for name in puzzles.PUZZLES:
        for _ in range(samples):
            for text in puzzles.sample(rng, name):
                words.update(dict.fromkeys(tokenizer.ASCII.findall(text)))
    rank = {m: i for i, m in enumerate(merges)}
    for w in words:
        s = [tokenizer.BYTES[b] for b in w.encode()]
        while len(s) > 1:
            best = min(range(len(s) - 1), key=lambda i: rank.get((s[i], s[i + 1]), 1 << 30))
            pair = s[best], s[best + 1]
            if pair not in rank:
                pair, best = (s[0], s[1]), 0
                rank[pair] = len(rank)
                merges.append(pair)
                vocab.setdefault(pair[0] + pair[1], len(vocab))
            s[best:best + 2] = [pair[0] + pair[1]]


@torch.no_grad()
def deepen(model, tok, init, lines):
    """The layers of the source, each followed by new ones without output, whose heads look at fixed distances."""
    old, special, _ = grow.source(init)
    depth, layers = 1 + max(int(n.split(".")[1]) for n in old if n.startswith("blocks")), len(model.blocks)
    k = min(special.values())
    for name in ("wte", "head"):
        p = getattr(model, name)
        p.copy_(old[name][:k].mean(0) + torch.randn(p.shape) * old[name][:k].std(0) * (name == "wte"))
        p[:k] = old[name][:k]
        for s, i in tok.special.items():
            p[i] = old[name][special[s]]
    for word, i in tok.vocab.items():                        # "Left" starts near "left"
        like = tok.vocab.get(word[:1] + word[1:].lower(), i)
        if like < k <= i:
            model.wte[i] = (model.wte[i] + old["wte"][like]) / 2
    model.norm.copy_(old["norm"])
    new = []
    for i, blk in enumerate(model.blocks):
        j = i * depth // layers
        if i and (i - 1) * depth // layers == j:
            blk.wo.zero_(), blk.down.zero_()
            new.append(i)
            continue
        for n, p in blk.named_parameters():
            p.copy_(old[f"blocks.{j}.{n}"])
    clue = puzzles.CELLS + len(tok.prompt("")) - 3           # from a cell back to its clue
    if not new:                                              # as deep as its source: what it has learned stays
        return move_clues(model, tok, lines, clue)
    plant_distances(model, tok, {i: (-clue, -puzzles.WIDTH, puzzles.WIDTH, 0) if i == new[0] else
                                 (-1, 1, -puzzles.WIDTH, puzzles.WIDTH) for i in new})


@torch.no_grad()
def plant_distances(model, tok, distances):
    """Heads that look at fixed distances: scores peak where key position - query position is the distance.

    Queries and keys need a constant for that. It is the direction in which the rows of a few problems differ least."""
    rng, rows = random.Random(5), []
    for name in puzzles.DEEP:
        for _ in range(3):
            q, a = puzzles.sample(rng, name)
            ids = torch.tensor([tok.prompt(q) + tok.response(a)])
            rows.append(ids.masked_fill(torch.rand(ids.shape) < 0.3, tok.mask))
    hd = model.blocks[0].hd
    half = hd // 2
    freq = model.c["rope_theta"] ** (-torch.arange(half).double() / half)
    for i, heads in distances.items():
        seen = []
        hook = model.blocks[i].register_forward_hook(lambda m, args, out: seen.append(args[0][0]))
        for ids in rows:
            model(ids)
        hook.remove()
        x = torch.cat(seen)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        one = torch.linalg.solve(x.T @ x + 1e-3 * len(x) * torch.eye(x.shape[1]), x.sum(0))
        print("layer", i, "constant within", float((x @ one - 1).std()), flush=True)
        blk = model.blocks[i]
        for h, distance in enumerate(heads):
            if distance == 0:
                continue
            for w in (blk.wq, blk.wk):
                w[h * hd:(h + 1) * hd] *= 0.1
            for j in range(8):
                blk.wk[h * hd + j] += 6 * one
                blk.wq[h * hd + j] += 6 * float((freq[j] * distance).cos()) * one
                blk.wq[h * hd + j + half] += 6 * float((freq[j] * distance).sin()) * one


@torch.no_grad()
def move_clues(model, tok, lines, clue, least=0.25):
    """For a source that learned puzzles of fewer lines: heads that look from a cell to its clue find it where it is now.

    A head looks at a distance if that is where most of its weight is, and it is not little. RoPE is relative, so turning
    its queries moves what they look at."""
    before = clue - (puzzles.LINES - lines) * puzzles.WIDTH
    if before == clue:
        return
    ids = torch.randint(min(tok.special.values()), (8, 2 * before))
    ids[:, before:] = tok.mask
    hd, half, n = model.blocks[0].hd, model.blocks[0].hd // 2, ids.shape[1]
    turn = (before - clue) * model.c["rope_theta"] ** (-torch.arange(half).double() / half)
    cos, sin = turn.cos().float(), turn.sin().float()
    far = torch.arange(n)[None] - torch.arange(n)[:, None]
    x = model.wte[ids]
    for i, blk in enumerate(model.blocks):
        a = rms_norm(x, blk.attn_norm, model.c["eps"])
        q, k = (rope(F.linear(a, w).view(len(ids), n, -1, hd).transpose(1, 2), model.cos[:n], model.sin[:n]) for w in (blk.wq, blk.wk))
        p = (q * hd ** -0.5 @ k.transpose(-1, -2)).softmax(-1)
        x = blk(x, model.cos[:n], model.sin[:n], None, None)
        for h in range(p.shape[1]):
            mass = torch.stack([p[:, h].masked_select(far == d).mean() for d in range(1 - n, n)])
            if int(mass.argmax()) == n - 1 - before and mass.max() > least:
                print("layer", i, "head", h, "looks at its clue:", float(mass.max()), flush=True)
                w = blk.wq[h * hd:(h + 1) * hd]
                w.copy_(rope(w.T, cos, sin).T)


class Data(train.Data):
    weight = WEIGHT

    def next(self, progress, grow_share, model):
        rng, rows = self.rng, ([], [])
        for task in rng.choices(range(len(self.names)), self.weights, k=self.batch):
            name = self.names[task]
            full = min(1.0, 0.1 + 0.9 * progress / max(grow_share, 1e-9)) if name in puzzles.PUZZLES else 1.0
            size = full if rng.random() < 0.6 else rng.uniform(0.1, full)
            q, ans = puzzles.sample(rng, name, size)
            prompt = grow.twin_prompt(self.tok, q) if rng.random() < self.twin else self.tok.prompt(q)
            rows[name in puzzles.PUZZLES].append((task, prompt, self.tok.response(ans)))
        for part, free in zip(rows, (False, True)):
            part.sort(key=lambda r: len(r[1]) + len(r[2]))
            half = len(part) if free else (len(part) + 1) // 2
            for p in (part[:half], part[half:]):
                if p:
                    yield self.dense(p) if not free and rng.random() < self.share else self.make(p, progress)

    def make(self, rows, progress):
        """As in train.py, with larger canvases, and for the puzzles any rate of hidden tokens up to all of them."""
        rng = self.rng
        n = max(len(p) + len(r) for _, p, r in rows) + rng.choice((0, 2, 6))
        canvas = rng.choices((0, settings.DEEP_CANVAS, 256), (0.8, 0.15, 0.05))[0]
        n = max(n, max(len(p) for _, p, _ in rows) + canvas)
        if canvas > settings.DEEP_CANVAS and len(rows) > 4:
            rows = rng.sample(rows, 4)                       # padding teaches little and costs as much
        ids = torch.full((len(rows), n), self.tok.pad)
        u = torch.rand(len(rows), n)
        rate, weight = torch.zeros(len(rows), n), torch.zeros(len(rows), n)
        for i, (task, p, r) in enumerate(rows):
            a, b = len(p), len(p) + len(r)
            ids[i, :b] = torch.tensor(p + r)
            free = self.names[task] in puzzles.PUZZLES
            if rng.random() < (0.7 if free else 0.35):       # any part hidden
                rate[i, a:] = rng.uniform(0.1, 1.0)
                weight[i, a:b + 1] = 1.0 if free else 0.6
            else:                                            # as in decoding: done, a block in work, the rest open
                k = rng.randint(a, b - 1)
                e = k + rng.choice((4, 8, 16, 32))
                rate[i, k:] = 1
                rate[i, k + 1:e] = rng.uniform(0.3, 1.0)
                weight[i, a:] = 0.5 if free else 0.05
                weight[i, k:e] = 1 if free else 0.25
                weight[i, k:k + 6] = 1
            weight[i, b + 1:] = 0.05                         # padding is easy
            if self.names[task] == "dyck_languages" and rng.random() < 0.5:
                rate[i, 4:a - 5] = rng.uniform(0.05, 0.3)
                weight[i, 4:a - 5] = 0.9
        hide = u < rate
        return torch.where(hide, self.tok.mask, ids), ids, hide, weight, torch.tensor([r[0] for r in rows]), None, None


def shape(family, layers, hidden):
    return dict(train.SHAPE[family], d_model=128, n_heads=4, n_kv_heads=4, n_layers=layers, hidden=hidden)


if __name__ == "__main__":
    train.main(data="deep")
