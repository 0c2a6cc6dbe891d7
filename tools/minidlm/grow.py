"""Makes a Dream model with the function of a trained LLaDA model: `grow.py SOURCE OUT` writes OUT as a run folder.

SOURCE is a checkpoint or a GGUF file.
"""
import json
import os
import sys

import torch

import gguf
import tokenizer
from model import SHAPE, MiniDLM

# Which token of LLaDA a token of Dream's chat template starts from. Both templates have five tokens before the answer:
# <|im_end|> newline <|im_start|> assistant newline, and <|eot_id|> <|start_header_id|> assistant <|end_header_id|> newlines.
ROLES = {"<|endoftext|>": "<|endoftext|>", "<|im_start|>": "assistant", "<|im_end|>": "<|eot_id|>", "<|mask|>": "<|mdm_mask|>",
         "assistant": "<|end_header_id|>"}
NEWLINE = {"<|im_end|>": "<|start_header_id|>", "assistant": "\u010a\u010a", "user": "\u010a\u010a"}   # after these tokens


def source(path):
    """Weights under the names of model.py, special tokens, and (vocabulary, merges)."""
    if not path.endswith(".gguf"):
        s = torch.load(path, map_location="cpu")
        with open(os.path.join(os.path.dirname(path), "tokenizer.json")) as f:
            doc = json.load(f)["model"]
        return s["ema"], s["special"], (doc["vocab"], [tuple(m.split(" ")) for m in doc["merges"]])
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


def prepare(out, family, init, extend=None):
    """Writes tokenizer.json of a new run with the words of its source; extend may add some."""
    path = os.path.join(out, "tokenizer.json")
    if not os.path.exists(path):
        vocab, merges = source(init)[2]
        if extend:
            extend(vocab, merges)
        tokenizer.write(path + ".tmp", family, vocab, merges)
        os.replace(path + ".tmp", path)


def twin_prompt(tok, question):
    """The prompt of the Dream model as `twin` lets the layers of the LLaDA model see it, in the LLaDA model's tokens."""
    ids = tok.encode("system\nYou are a helpful assistant.<|eot_id|><|start_header_id|>")
    return ids + [tok.vocab["assistant"]] + tok.encode("user") + tok.encode("\n\n" + question + tok.family["after"])


@torch.no_grad()
def twin(model, tok, init, small=0.05):
    """A Dream model with the function of a LLaDA model, up to the other chat template.

    Row p-1 has to predict token p. So the state has two halves: one holds the row's own token, the other what the
    LLaDA model has in the row to the right. A first layer, whose heads look one position to the right (biases on Q
    and K do that), fills the second half with the token there, and the layers of the LLaDA model go on with it: RoPE
    is relative, so a shift of all rows changes nothing. Twice the width gives twice the query heads, two on each
    key/value head; the second of each starts with no output.

    RMSNorm sees both halves, so the own half is kept small and its norm weights large. Embeddings are brought
    to one length by a channel of the second half, as the norm of the first layer would lose their lengths.
    The FFN of the first layer gives the newlines of the chat template the states of their roles.
    """
    old, special, (vocab, _) = source(init)
    was, now = {**vocab, **special}, {**tok.vocab, **tok.special}
    d, hd, theta = old["wte"].shape[1], model.blocks[0].hd, model.c["rope_theta"]
    depth = 1 + max(int(n.split(".")[1]) for n in old if n.startswith("blocks"))
    assert model.c["d_model"] == 2 * d and len(model.blocks) == depth + 1
    own, right, k = slice(0, d), slice(d, 2 * d), min(special.values())
    model.wte.zero_(), model.head.zero_()
    for name, to in (("wte", own), ("head", right)):
        p = getattr(model, name)
        p[:k, to] = old[name][:k]
        for token, role in ROLES.items():
            p[now[token], to] = old[name][was[role]]
    token = model.wte.clone()
    length = model.wte.norm(dim=1)
    model.wte[:, -1] = (length.max() ** 2 - length ** 2).sqrt()
    model.wte *= small

    def norm(weight, o):
        weight[own], weight[right] = 1 / small, o * 0.5 ** 0.5

    norm(model.norm, old["norm"])
    first, half = model.blocks[0], hd // 2
    freq = theta ** (-torch.arange(half).double() / half)
    for p in (first.wq, first.wk, first.wv, first.wo, first.down):
        p.zero_()
    for j in range(4):                                       # the fast rotations: scores peak one position to the right
        first.bq.view(-1, hd)[:, j] = 12 * float(freq[j].cos())
        first.bq.view(-1, hd)[:, j + half] = 12 * float(freq[j].sin())
        first.bk.view(-1, hd)[:, j] = 12
    first.wv[:, own] = torch.eye(d)
    heads = lambda w: w.view(w.shape[0], -1, 2, hd)[:, :, 0]  # the first query head of each key/value head
    heads(first.wo)[right] = (torch.eye(d) * length.max() / (2 * d) ** 0.5).view(d, -1, hd)
    norm(first.ff_norm, torch.zeros(d))
    first.gate.zero_(), first.up.zero_()
    for i, (left, role) in enumerate(NEWLINE.items()):       # gate and up are ten for this token and small for others
        e = token[:, own]
        detect = torch.linalg.solve(e.T @ e + 1e-3 * torch.eye(d), e[now[left]])
        detect *= 10 / (e[now[left]] @ detect) * length[now["\u010a"]] / (2 * d) ** 0.5
        first.gate[i, own] = first.up[i, own] = detect
        first.down[right, i] = (old["wte"][was[role]] - old["wte"][was["\u010a"]]) / 100
    for i, blk in enumerate(model.blocks[1:]):
        o = {n: old[f"blocks.{i}.{n}"] for n, _ in blk.named_parameters() if f"blocks.{i}.{n}" in old}
        norm(blk.attn_norm, o["attn_norm"]), norm(blk.ff_norm, o["ff_norm"])
        for n in ("wk", "wv", "gate", "up"):
            getattr(blk, n).zero_()[:, right] = o[n]
        blk.wq[:, own] = 0
        blk.wq.view(-1, 2, hd, 2 * d)[:, 0, :, right] = o["wq"].view(-1, hd, d)
        blk.wo.zero_(), blk.down.zero_()
        heads(blk.wo)[right] = o["wo"].view(d, -1, hd)
        blk.down[right] = o["down"]


def main(init, out):
    os.makedirs(out, exist_ok=True)
    prepare(out, "dream", init)
    tok = tokenizer.Tokenizer(os.path.join(out, "tokenizer.json"), "dream")
    torch.manual_seed(1)
    depth = 1 + max(int(n.split(".")[1]) for n in source(init)[0] if n.startswith("blocks"))
    model = MiniDLM(dict(SHAPE["dream"], n_layers=depth + 1), tok.size)
    twin(model, tok, init)
    best = os.path.join(out, "best.pt")
    torch.save({"ema": model.state_dict(), "step": 0, "shape": model.c, "vocab": tok.size, "special": tok.special},
               best + ".tmp")
    os.replace(best + ".tmp", best)


if __name__ == "__main__":
    main(*sys.argv[1:])
