"""The LLaDA and Dream architectures in plain PyTorch: pre-norm, RoPE (half-split), SwiGLU, no causal mask.

Dream differs in three ways: grouped key/value heads, a bias on Q, K and V, and logits that are shifted by
one, so that row p-1 predicts position p.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

SHAPE = {
    "llada": dict(family="llada", d_model=128, n_heads=4, n_kv_heads=4, n_layers=6, hidden=256, rope_theta=500000.0,
                  eps=1e-5, context=1024),
    "dream": dict(family="dream", d_model=256, n_heads=8, n_kv_heads=4, n_layers=7, hidden=256, rope_theta=500000.0,
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

    def forward(self, ids, keep=None, mask=None, pos=None):
        """Logits per position; with keep (bool, same shape as ids) only those, as a flat list of rows.

        mask is added to the attention scores, pos are positions other than 0, 1, 2, ...: both for training."""
        n, shift = ids.shape[1], self.c["family"] == "dream"  # row p-1 predicts position p
        if keep is not None and shift:
            keep = torch.cat((keep[:, 1:], torch.zeros_like(keep[:, :1])), 1)
        cos, sin = (self.cos[:n], self.sin[:n]) if pos is None else (self.cos[pos][:, None], self.sin[pos][:, None])
        x = self.wte[ids]
        for i, blk in enumerate(self.blocks):
            x = blk(x, cos, sin, mask, keep if i + 1 == len(self.blocks) else None)
        if keep is None and shift:                           # row 0 has nothing to its left: it predicts itself
            x = torch.cat((x[:, :1], x[:, :-1]), 1)
        return F.linear(rms_norm(x, self.norm, self.c["eps"]), self.head)


@torch.no_grad()
def plant_copying(model, mask_id):
    """Starts training with working copy heads, which small models otherwise need thousands of steps to find.

    Layer 0 gets one head that looks at the token to the left and one that looks two to the left; layer 1 gets
    heads that look for places with the same left neighbours and fetch the token there; the output head starts
    as the embedding. Everything stays trainable. Widths: channel 0 is a constant, 1..63 are the token (nothing
    for the mask token, so a fetched token stands alone there), 64..95 and 96..126 receive the neighbours, 127 marks the
    mask token.
    """
    d, hd = model.c["d_model"], model.blocks[0].hd
    half, tok = hd // 2, 63
    assert d == 128 and hd == 32 and model.c["n_kv_heads"] == model.c["n_heads"]
    model.wte[:, 0] = 4.0
    model.wte[:, 1:64].normal_(std=1.3)
    model.wte[:, 64:].normal_(std=0.02)
    model.wte[:, 127] = 0
    model.wte[mask_id, 1:64], model.wte[mask_id, 127] = 0, 10.3          # the usual length
    freq = model.c["rope_theta"] ** (-torch.arange(half).double() / half)
    near, far = range(0, 4), [i for i in range(half) if freq[i] < 0.01]      # fast and nearly still rotations
    still = far[:-1] + [i + half for i in far]
    project = [torch.randn(hd, tok) * tok ** -0.5 for _ in range(2)]
    first, second = model.blocks[0], model.blocks[1]
    for h, offset in ((0, -1), (1, -2)):
        r = slice(h * hd, (h + 1) * hd)
        first.wq[r], first.wk[r], first.wv[r], first.wo[:, r] = 0, 0, 0, 0
        for i in near:                                       # scores peak where key position - query position = offset
            first.wk[h * hd + i, 0] = 1.8
            first.wq[h * hd + i, 0] = 1.8 * float((freq[i] * -offset).cos())
            first.wq[h * hd + i + half, 0] = 1.8 * float((freq[i] * offset).sin())
        first.wv[r, 1:64] = project[h]
        first.wo[64 + 32 * h:96 + 32 * h, r] = torch.eye(hd)
    first.wo[127] = 0
    for h, (left, left2) in ((0, (1.0, 0.0)), (1, (0.75, 0.75))):
        r = slice(h * hd, (h + 1) * hd)
        second.wq[r], second.wk[r], second.wv[r], second.wo[:, r] = 0, 0, 0, 0
        for n, i in enumerate(still):
            for w in (second.wq, second.wk):
                w[h * hd + i, 64 + n] = 2.2 * left
                w[h * hd + i, 96 + n] = 2.2 * left2 * (1 if n % 2 else -1)
        second.wq[h * hd + half - 1, 0], second.wk[h * hd + half - 1, 127] = 2.0, -2.0    # never at a mask
        for i in range(hd if h == 0 else hd - 1):            # each head fetches half of the token's channels
            second.wv[h * hd + i, 1 + 32 * h + i] = 1
            second.wo[1 + 32 * h + i, h * hd + i] = 1
    model.head[:, 1:64] = 0.12 * model.wte[:, 1:64]


@torch.no_grad()
def generate(model, prompts, gen_length, block_length, mask_id, pad_id, stops=()):
    """Greedy decoding with as many steps as tokens. LLaDA settles the most probable token of the block at each
    step; Dream those of least entropy, as many as its time grid says (often none, then two). Prompts of different
    lengths are padded on the left and the padding is not attended to; RoPE is relative, so this changes rounding only.
    A single prompt ends early at a token of stops: once all before it is settled, what is still open is padding."""
    b, p, dream = len(prompts), max(map(len, prompts)), model.c["family"] == "dream"
    x = torch.full((b, p + gen_length), mask_id)
    pad = torch.zeros(b, 1, 1, p + gen_length, dtype=model.wte.dtype)
    for i, ids in enumerate(prompts):
        x[i, :p - len(ids)] = pad_id
        pad[i, 0, 0, :p - len(ids)] = -1e9
        x[i, p - len(ids):p] = torch.tensor(ids)
    mask = pad if len(set(map(len, prompts))) > 1 else None
    keep = torch.zeros_like(x, dtype=torch.bool)
    time = torch.linspace(1, 1e-3, block_length + 1)
    for start in range(p, p + gen_length, block_length):
        block = slice(start, start + block_length)
        keep[:] = False
        keep[:, block] = True
        left = block_length
        for step in range(block_length):
            count = 1
            if dream:
                count = int(left * (1 - time[step + 1] / time[step])) if step + 1 < block_length else left
            if count == 0:
                continue
            prob = model(x, keep, mask).view(b, block_length, -1).softmax(-1)
            best, tok = prob.max(-1)
            score = (prob * (prob + 1e-10).log()).sum(-1) if dream else best
            score = score.masked_fill(x[:, block] != mask_id, float("-inf"))
            pick = score.topk(count, -1).indices
            x[:, block] = x[:, block].scatter(1, pick, tok.gather(1, pick))
            left -= count
            if b == 1 and any(t in stops for t in x[0, p:p + (x[0, p:] == mask_id).int().argmax()].tolist()):
                x[0, p:] = x[0, p:].masked_fill(x[0, p:] == mask_id, pad_id)
                return x[:, p:].tolist()
    return x[:, p:].tolist()
