"""The LLaDA and Dream architectures in plain PyTorch: pre-norm, RoPE (half-split), SwiGLU, no causal mask.

Dream differs in three ways: grouped key/value heads, a bias on Q, K and V, and logits that are shifted by
one, so that row p-1 predicts position p.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

SHAPE = {
    "llada": dict(family="llada", d_model=128, n_heads=4, n_kv_heads=4, n_layers=6, hidden=256, rope_theta=10000.0,
                  eps=1e-5, context=1024),
    "dream": dict(family="dream", d_model=128, n_heads=4, n_kv_heads=2, n_layers=6, hidden=256, rope_theta=10000.0,
                  eps=1e-6, context=1024),
}


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, h = c["d_model"], c["hidden"]
        self.c, self.hd = c, d // c["n_heads"]
        kv = c["n_kv_heads"] * self.hd
        self.attn_norm, self.ff_norm = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        def matrix(rows, cols, gain=1.0):
            return nn.Parameter(torch.randn(rows, cols) * gain * cols ** -0.5)
        self.wq, self.wk, self.wv = matrix(d, d), matrix(kv, d), matrix(kv, d)
        self.wo = matrix(d, d, 0.1)
        self.gate, self.up, self.down = matrix(h, d), matrix(h, d), matrix(d, h, 0.1)
        if c["family"] == "dream":
            self.bq, self.bk, self.bv = (nn.Parameter(torch.zeros(n)) for n in (d, kv, kv))

    def forward(self, x, cos, sin, mask=None, keep=None):
        b, n, d = x.shape
        c, a = self.c, rms_norm(x, self.attn_norm, self.c["eps"])
        bias = (self.bq, self.bk, self.bv) if c["family"] == "dream" else (None, None, None)
        q, k, v = (F.linear(a, w, z).view(b, n, -1, self.hd).transpose(1, 2)
                   for w, z in zip((self.wq, self.wk, self.wv), bias))
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        g = c["n_heads"] // c["n_kv_heads"]
        if g > 1:
            k, v = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
        s = (q * self.hd ** -0.5) @ k.transpose(-1, -2)
        if mask is not None:
            s = s + mask
        y = (s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d)
        if keep is not None:
            x, y = x[keep], y[keep]
        x = x + F.linear(y, self.wo)
        a = rms_norm(x, self.ff_norm, c["eps"])
        return x + F.linear(F.silu(F.linear(a, self.gate)) * F.linear(a, self.up), self.down)


class MiniDLM(nn.Module):
    def __init__(self, c, vocab):
        super().__init__()
        self.c, self.vocab = dict(c), vocab
        self.wte = nn.Parameter(torch.randn(vocab, c["d_model"]))
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["n_layers"]))
        self.norm = nn.Parameter(torch.ones(c["d_model"]))
        self.head = nn.Parameter(torch.zeros(vocab, c["d_model"]))
        half = c["d_model"] // c["n_heads"] // 2
        angle = torch.arange(c["context"]).double()[:, None] * c["rope_theta"] ** (-torch.arange(half).double() / half)
        self.register_buffer("cos", angle.cos().float(), persistent=False)
        self.register_buffer("sin", angle.sin().float(), persistent=False)

    def forward(self, ids, keep=None, mask=None):
        """Logits per position; with keep (bool, same shape as ids) only those, as a flat list of rows."""
        n, shift = ids.shape[1], self.c["family"] == "dream"  # row p-1 predicts position p
        if keep is not None and shift:
            keep = torch.cat((keep[:, 1:], torch.zeros_like(keep[:, :1])), 1)
        x = self.wte[ids]
        for i, blk in enumerate(self.blocks):
            x = blk(x, self.cos[:n], self.sin[:n], mask, keep if i + 1 == len(self.blocks) else None)
        if keep is None and shift:                           # row 0 has nothing to its left: it predicts itself
            x = torch.cat((x[:, :1], x[:, :-1]), 1)
        return F.linear(rms_norm(x, self.norm, self.c["eps"]), self.head)


@torch.no_grad()
def generate(model, prompts, gen_length, block_length, mask_id, pad_id):
    """Greedy decoding, one token a step: LLaDA takes the most probable token of the block, Dream the one of
    least entropy. Prompts of different lengths are padded on the left and the padding is not attended to;
    RoPE is relative, so this changes rounding only."""
    b, p = len(prompts), max(map(len, prompts))
    x = torch.full((b, p + gen_length), mask_id)
    pad = torch.zeros(b, 1, 1, p + gen_length, dtype=model.wte.dtype)
    for i, ids in enumerate(prompts):
        x[i, :p - len(ids)] = pad_id
        pad[i, 0, 0, :p - len(ids)] = -1e9
        x[i, p - len(ids):p] = torch.tensor(ids)
    rows, mask = torch.arange(b), pad if len(set(map(len, prompts))) > 1 else None
    keep = torch.zeros_like(x, dtype=torch.bool)
    for start in range(p, p + gen_length, block_length):
        keep[:] = False
        keep[:, start:start + block_length] = True
        for _ in range(block_length):
            prob = model(x, keep, mask).view(b, block_length, -1).softmax(-1)
            best, tok = prob.max(-1)
            score = best if model.c["family"] == "llada" else (prob * (prob + 1e-10).log()).sum(-1)
            score = score.masked_fill(x[:, start:start + block_length] != mask_id, float("-inf"))
            pick = score.argmax(-1)
            x[rows, start + pick] = tok[rows, pick]
    return x[:, p:].tolist()
