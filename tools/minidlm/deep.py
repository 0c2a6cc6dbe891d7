"""Trains the deep, narrow models: grown from a trained model, on the tasks of tasks.py and puzzles.py.

`--init` is models/minillada.gguf or a checkpoint. Each of its layers is followed by new layers whose outputs start at
zero, and new FFN units start with a zero output too, so that at the start the function is exactly the old one. The
vocabulary is extended: old tokens keep their ids, the special tokens move behind the new ones.
"""
import json
import os
import random

import torch

import gguf
import puzzles
import tasks
import tokenizer
import train
from model import MiniDLM

WEIGHT = {"boolean_expressions": 0.4, "dyck_languages": 0.5, "web_of_lies": 0.4, "navigate": 0.5,
          "tracking_shuffled_objects_three_objects": 0.3, "object_counting": 0.5, "logical_deduction_three_objects": 0.5,
          "sudoku_four": 0.7, "sudoku_six": 1.5, "addition": 1.0, "topological_order": 1.5, "map_colouring": 1.2}


def extend_vocabulary(vocab, merges, samples=300):
    """One token for every word of the new tasks: what the old merges leave in pieces is merged from left to right."""
    rng, words = random.Random(3), {}
    for name in {**puzzles.WORKED, **puzzles.FREE}:
        for _ in range(samples):
            for text in puzzles.sample(rng, name):
                words.update(dict.fromkeys(tokenizer.ASCII.findall(text)))
    words.update({" " + c: None for c in puzzles.LETTERS})
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


def source(path):
    """Weights under the names of model.py, tokens, merges and special tokens of a GGUF file or a checkpoint."""
    if not path.endswith(".gguf"):
        s = torch.load(path, map_location="cpu")
        return s["ema"], s["special"], None
    meta, t = gguf.read(path)
    tokens = meta["tokenizer.ggml.tokens"]
    kinds = meta["tokenizer.ggml.token_type"]
    names = {"attn_norm": "attn_norm", "attn_q": "wq", "attn_k": "wk", "attn_v": "wv", "attn_output": "wo",
             "ffn_norm": "ff_norm", "ffn_gate": "gate", "ffn_up": "up", "ffn_down": "down"}
    out = {"wte": t["token_embd.weight"], "norm": t["output_norm.weight"], "head": t["output.weight"]}
    for n, v in t.items():
        if n.startswith("blk."):
            _, i, name, _ = n.split(".")
            if name in ("attn_q", "attn_k"):                 # GGUF keeps the two halves of a head interleaved
                v = v.view(meta["llada.attention.head_count"], -1, 2, v.shape[1]).transpose(1, 2).reshape(v.shape)
            out[f"blocks.{i}.{names[name]}"] = v
    special = {x: i for i, (x, k) in enumerate(zip(tokens, kinds)) if k == 3}
    vocab = {x: i for i, x in enumerate(tokens) if x not in special}
    return out, special, (vocab, [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]])


def prepare(out, family, init):
    """Writes tokenizer.json of a new run; a run that starts from a checkpoint takes the words of that run."""
    path = os.path.join(out, "tokenizer.json")
    if os.path.exists(path):
        return
    if init.endswith(".gguf"):
        vocab, merges = source(init)[2]
        extend_vocabulary(vocab, merges)
    else:
        with open(os.path.join(os.path.dirname(init), "tokenizer.json")) as f:
            doc = json.load(f)["model"]
        vocab, merges = doc["vocab"], [tuple(m.split(" ")) for m in doc["merges"]]
    tokenizer.write(path, family, vocab, merges)


ROLES = {"<|endoftext|>": "<|endoftext|>", "<|im_start|>": "<|start_header_id|>", "<|im_end|>": "<|eot_id|>",
         "<|mask|>": "<|mdm_mask|>"}


@torch.no_grad()
def plant_shift(blk, theta):
    """The last layer of a Dream model that starts from a LLaDA model: every row takes the state of the row to its right.

    Biases on Q and K make attention at a fixed offset; the output outweighs the row's own state."""
    hd, d = blk.hd, blk.wv.shape[1]
    half = hd // 2
    freq = theta ** (-torch.arange(half).double() / half)
    for p in (blk.wq, blk.wk, blk.wo, blk.down, blk.bq, blk.bk, blk.bv):
        p.zero_()
    for h in range(blk.c["n_heads"]):
        for j in range(4):
            blk.bq[h * hd + j] = 12 * float(freq[j].cos())
            blk.bq[h * hd + j + half] = 12 * float(freq[j].sin())
            blk.bk[h * hd + j] = 12
    blk.wv.copy_(torch.eye(d))
    blk.wo.copy_(1000 * torch.eye(d))


@torch.no_grad()
def deepen(model, tok, init):
    old, special, _ = source(init)
    shift = model.c["family"] == "dream" and "<|im_start|>" not in special      # a LLaDA model becomes a Dream model
    depth = 1 + max(int(n.split(".")[1]) for n in old if n.startswith("blocks"))
    k = min(special.values())
    for name in ("wte", "head"):
        p = getattr(model, name)
        p.copy_(old[name][:k].mean(0) + torch.randn(p.shape) * old[name][:k].std(0) * (name == "wte"))
        p[:k] = old[name][:k]
        for s, i in tok.special.items():
            p[i] = old[name][special[ROLES[s] if shift else s]]
    model.norm.copy_(old["norm"])
    layers = len(model.blocks) - shift
    for i, blk in enumerate(model.blocks):
        if i == layers:
            plant_shift(blk, model.c["rope_theta"])
            continue
        j = i * depth // layers
        if i and (i - 1) * depth // layers == j:             # a new layer
            blk.wo.zero_(), blk.down.zero_()
            continue
        for n, p in blk.named_parameters():
            if f"blocks.{j}.{n}" not in old:
                p.zero_()                                    # the biases of Dream
                continue
            o = old[f"blocks.{j}.{n}"]
            if n == "down":
                p.zero_()
                p[:, :o.shape[1]] = o
            else:
                p[:o.shape[0]] = o


class Data(train.Data):
    def __init__(self, tok, a, seed):
        super().__init__(tok, a, seed)
        weight = dict(WEIGHT)
        for item in filter(None, a.weights.split(",")):
            k, v = item.split("=")
            weight[k] = float(v)
        self.names, self.weight = list(weight), list(weight.values())

    def next(self, progress, grow):
        rng, rows = self.rng, ([], [])
        for task in rng.choices(range(len(self.names)), self.weight, k=self.batch):
            name = self.names[task]
            full = min(1.0, 0.3 + 0.7 * progress / max(grow, 1e-9)) if name not in tasks.TASKS else 1.0
            size = full if rng.random() < 0.6 else rng.uniform(0.25, full)
            q, ans = puzzles.sample(rng, name, size)
            rows[name in puzzles.FREE].append((task, self.tok.prompt(q), self.tok.response(ans)))
        for part, free in zip(rows, (False, True)):
            part.sort(key=lambda r: len(r[1]) + len(r[2]))
            half = (len(part) + 1) // 2
            for p in (part[:half], part[half:]):
                if p:
                    yield self.dense(p) if not free and rng.random() < self.share else self.make(p, progress)

    def make(self, rows, progress):
        """As in train.py, with larger canvases, and for the puzzles any rate of hidden tokens up to all of them."""
        rng = self.rng
        n = max(len(p) + len(r) for _, p, r in rows) + rng.choice((0, 2, 6))
        canvas = rng.choices((0, 64, 128, 256), (0.76, 0.13, 0.08, 0.03))[0]
        n = max(n, max(len(p) for _, p, _ in rows) + canvas)
        if canvas > 64 and len(rows) > 4:
            rows = rng.sample(rows, 4)                       # padding teaches little and costs as much
        ids = torch.full((len(rows), n), self.tok.pad)
        u = torch.rand(len(rows), n)
        rate, weight = torch.zeros(len(rows), n), torch.zeros(len(rows), n)
        for i, (task, p, r) in enumerate(rows):
            a, b = len(p), len(p) + len(r)
            ids[i, :b] = torch.tensor(p + r)
            free = self.names[task] in puzzles.FREE
            if rng.random() < (0.65 if free else 0.4):       # any part hidden
                rate[i, a:] = rng.uniform(0.1, 1.0)
                weight[i, a:b + 1] = 1.0 if free else 0.6
            else:                                            # as in decoding: done, a block in work, the rest open
                k = rng.randint(a, b - 1)
                e = k + rng.choice((4, 8, 16, 32))
                rate[i, k:] = 1
                rate[i, k + 1:e] = rng.uniform(0.3, 1.0)
                weight[i, a:] = 0.2 if free else 0.05
                weight[i, k:e] = 0.5 if free else 0.25
                weight[i, k:k + 6] = 1
            weight[i, b + 1:] = 0.05                         # padding is easy
            dyck = self.names[task] == "dyck_languages"
            if rng.random() < (0.5 if dyck else 0.05):
                rate[i, 4:a - 5] = rng.uniform(0.05, 0.3)
                weight[i, 4:a - 5] = 0.9 if dyck else 0.3
        hide = u < rate
        return torch.where(hide, self.tok.mask, ids), ids, hide, weight, torch.tensor([r[0] for r in rows]), None, None


def shape(family, layers, hidden):
    return dict(train.SHAPE[family], n_layers=layers, hidden=hidden, n_kv_heads=4)


if __name__ == "__main__":
    train.main(data="deep")
