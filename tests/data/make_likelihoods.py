#!/usr/bin/env python3
"""Writes likelihoods.json: what src/engine/likelihood.h defines, computed plainly with NumPy.

  python3 -m pip install numpy && tests/data/make_likelihoods.py

Every pass is the whole sequence in float64; the random numbers are those of src/base/random.h.
"""
import itertools
import json
import math
import os
import struct

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


# ---- models

def tensors(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            continue
        raw = open(os.path.join(folder, name), "rb").read()
        size = struct.unpack("<Q", raw[:8])[0]
        for key, t in json.loads(raw[8:8 + size]).items():
            if key == "__metadata__":
                continue
            begin, end = t["data_offsets"]
            bits = np.frombuffer(raw[8 + size + begin:8 + size + end], "<u2").astype(np.uint32)
            out[key] = (bits << 16).view(np.float32).reshape(t["shape"]).astype(np.float64)
    return out


LLADA = {"embed": "model.transformer.wte", "norm": "model.transformer.ln_f",
         "head": "model.transformer.ff_out", "layer": "model.transformer.blocks.{}.",
         "norm1": "attn_norm", "norm2": "ff_norm", "q": "q_proj", "k": "k_proj", "v": "v_proj",
         "o": "attn_out", "gate": "ff_proj", "up": "up_proj", "down": "ff_out"}
QWEN = {"embed": "model.embed_tokens", "norm": "model.norm", "head": "lm_head",
        "layer": "model.layers.{}.", "norm1": "input_layernorm",
        "norm2": "post_attention_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj",
        "v": "self_attn.v_proj", "o": "self_attn.o_proj", "gate": "mlp.gate_proj",
        "up": "mlp.up_proj", "down": "mlp.down_proj"}


class Model:
    def __init__(self, folder, shift=0, block=0):
        c = json.load(open(os.path.join(folder, "config.json")))
        self.w = tensors(folder)
        self.names = LLADA if "d_model" in c else QWEN
        self.layers = c.get("n_layers", c.get("num_hidden_layers"))
        self.heads = c.get("n_heads", c.get("num_attention_heads"))
        self.kv_heads = c.get("n_kv_heads", c.get("num_key_value_heads"))
        self.head_dim = c.get("head_dim", c.get("d_model", c.get("hidden_size")) // self.heads)
        self.theta, self.eps = c["rope_theta"], c["rms_norm_eps"]
        self.mask, self.eos = c["mask_token_id"], c["eos_token_id"]
        self.shift, self.block = shift, block

    def get(self, name, layer=None):
        prefix = "" if layer is None else self.names["layer"].format(layer)
        return self.w[prefix + self.names[name] + ".weight"]

    def linear(self, x, name, layer):
        bias = self.w.get(self.names["layer"].format(layer) + self.names[name] + ".bias")
        y = x @ self.get(name, layer).T
        return y if bias is None else y + bias

    def rms(self, x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * weight

    def rope(self, x):  # [rows, heads, head_dim]
        half = self.head_dim // 2
        angle = np.arange(len(x))[:, None] * self.theta ** (-np.arange(half) / half)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def log_p(self, ids):
        """[rows, vocab]: row p has the distribution of position p."""
        n = len(ids)
        h = self.get("embed")[ids]
        place = np.arange(n) // self.block if self.block else np.zeros(n)
        hidden = np.where(place[None, :] > place[:, None], -np.inf, 0.0)
        for layer in range(self.layers):
            a = self.rms(h, self.get("norm1", layer))
            q, k, v = (self.linear(a, x, layer).reshape(n, -1, self.head_dim) for x in "qkv")
            norm = self.names["layer"].format(layer) + "self_attn.{}_norm.weight"
            if norm.format("q") in self.w:
                q, k = self.rms(q, self.w[norm.format("q")]), self.rms(k, self.w[norm.format("k")])
            q, k = self.rope(q), self.rope(k)
            k, v = (np.repeat(x, self.heads // self.kv_heads, 1) for x in (k, v))
            score = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(self.head_dim) + hidden
            score = np.exp(score - score.max(-1, keepdims=True))
            score /= score.sum(-1, keepdims=True)
            h = h + self.linear(np.einsum("hij,jhd->ihd", score, v).reshape(n, -1), "o", layer)
            b = self.rms(h, self.get("norm2", layer))
            gate = self.linear(b, "gate", layer)
            h = h + self.linear(gate / (1 + np.exp(-gate)) * self.linear(b, "up", layer),
                                "down", layer)
        logits = self.rms(h, self.get("norm")) @ self.get("head").T
        top = logits.max(-1, keepdims=True)
        log_p = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
        return np.concatenate([log_p[:1]] * self.shift + [log_p[:n - self.shift]])


# ---- random numbers

BITS = (1 << 64) - 1
GAMMA = 0x9e3779b97f4a7c15


def mix(x):
    x ^= x >> 30
    x = x * 0xbf58476d1ce4e5b9 & BITS
    x ^= x >> 27
    x = x * 0x94d049bb133111eb & BITS
    return x ^ x >> 31


def uniform(seed, step, position, element):
    key = mix(mix(mix(seed + GAMMA & BITS) + step * GAMMA & BITS) + position * GAMMA & BITS)
    return ((mix(key + (element + 1) * GAMMA & BITS) >> 11) + 0.5) * 2.0 ** -53


# ---- estimators

TOGETHER = 8


def blocks(model, prompt, target):
    """(begin, end, where the pass ends) for the target's part of each block."""
    n = len(prompt) + len(target)
    if not model.block:
        return [(len(prompt), n, n)]
    out, begin = [], len(prompt)
    while begin < n:
        end = (begin // model.block + 1) * model.block
        out.append((begin, min(end, n), end))
        begin = end
    return out


def masked_sum(model, prompt, target, end, masked, tail=()):
    ids = np.array((prompt + target + list(tail))[:end])
    ids = np.concatenate([ids, [model.mask] * (end - len(ids))]).astype(int)
    whole = list(prompt) + list(target)
    ids[list(masked)] = model.mask
    log_p = model.log_p(ids)
    return sum(log_p[i, whole[i]] for i in masked)


def enumerate_all(model, prompt, target, tail):
    total = 0.0
    for begin, end, visible in blocks(model, prompt, target):
        n = end - begin
        visible += len(tail)
        for k in range(1, n + 1):
            for masked in itertools.combinations(range(begin, end), k):
                total += masked_sum(model, prompt, target, visible, masked, tail) / (
                    k * math.comb(n, k))
    return total, 0.0


def draws(model, prompt, target, tail, seed, count, rate):
    groups = [0.0] * (count // TOGETHER)
    first = len(prompt)
    for begin, end, visible in blocks(model, prompt, target):
        n = end - begin
        for group in range(len(groups)):
            u = uniform(seed, group, BITS, begin - first)
            for j in range(TOGETHER):
                draw = group * TOGETHER + j
                at = {i: uniform(seed, draw, 0, i - first) for i in range(begin, end)}
                t = math.fmod(u + j / TOGETHER, 1.0)
                if rate:
                    p = (1 - 1e-3) * t + 1e-3
                    masked, weight = [i for i in at if at[i] < p], 1 / p
                else:
                    k = 1 + int(t * n)
                    masked, weight = sorted(sorted(at, key=at.get)[:k]), n / k
                if masked:
                    groups[group] += weight / TOGETHER * masked_sum(
                        model, prompt, target, visible + len(tail), masked, tail)
    return np.mean(groups), np.std(groups, ddof=1) / math.sqrt(len(groups))


def chain(model, prompt, target):
    tokens, whole = [], prompt + target
    for begin, end, visible in blocks(model, prompt, target):
        for i in range(begin, end):
            ids = whole[:i] + [model.mask] * (visible - i)
            log_p = model.log_p(np.array(ids))[i]
            tokens.append([log_p[whole[i]], int(log_p.argmax()), log_p.max()])
    return tokens


def greedy(model, prompt, target):
    """Whether settling the surest position first, one per pass, writes the target."""
    whole, ids = prompt + target, list(prompt)
    for begin, end, visible in blocks(model, prompt, target):
        ids += [model.mask] * (visible - begin)
        open_ = list(range(begin, visible))
        while any(i < end for i in open_):
            log_p = model.log_p(np.array(ids))
            log_p[:, model.mask] = -np.inf
            best = max(open_, key=lambda i: (log_p[i].max(), -i))
            ids[best] = int(log_p[best].argmax())
            open_.remove(best)
            if best < end and ids[best] != whole[best]:
                return False
        ids = ids[:end]
    return True


def greedy_target(model, prompt, n):
    """What greedy decoding writes: the surest position first."""
    ids = prompt + [model.mask] * n
    for _ in range(n):
        log_p = model.log_p(np.array(ids))
        log_p[:, model.mask] = -np.inf
        open_ = [i for i in range(len(prompt), len(ids)) if ids[i] == model.mask]
        best = max(open_, key=lambda i: (log_p[i].max(), -i))
        ids[best] = int(log_p[best].argmax())
    return ids[len(prompt):]


def main():
    rng = np.random.default_rng(18)
    cases = []
    for folder, shift, block in [("tiny-llada-hf", 0, 0), ("families/dreamon/model", 1, 0),
                                 ("families/sdar/model", 0, 4)]:
        model = Model(os.path.join(HERE, folder), shift, block)
        words = min(model.mask, model.eos)
        for n in (1, 3, 7):
            prompt = [int(x) for x in rng.integers(0, words - 8, 9)]
            target = [int(x) for x in rng.integers(0, words - 8, n)]
            tail = [model.eos] if shift else []
            case = {"model": folder, "prompt": prompt, "target": target, "seed": 40 + n,
                    "draws": 24, "end_token": bool(tail),
                    "greedy": greedy(model, prompt, target), "chain": chain(model, prompt, target)}
            if n <= 3:
                case["enumerate"] = enumerate_all(model, prompt, target, tail)
            case["llada"] = draws(model, prompt, target, tail, 40 + n, 24, False)
            case["dream"] = draws(model, prompt, target, tail, 40 + n, 24, True)
            cases.append(case)
        if not block:
            prompt = cases[-1]["prompt"]
            target = greedy_target(model, prompt, 4)
            assert greedy(model, prompt, target)
            cases.append({"model": folder, "prompt": prompt, "target": target, "seed": 0,
                          "draws": 16, "end_token": False, "greedy": True,
                          "chain": chain(model, prompt, target)})
    path = os.path.join(HERE, "likelihoods.json")
    with open(path, "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    print(path, len(cases), "cases")


main()
