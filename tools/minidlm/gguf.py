"""Reads the tensors and the metadata of a GGUF file (tensors of types F32, F16, BF16 and Q8_0)."""
import struct

import torch

SCALAR = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STORED = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}
Q8_0 = 8                             # blocks of 32 values: a float16 scale, then 32 signed bytes


def floats(raw, kind, count, at):
    if kind != Q8_0:
        return torch.frombuffer(raw, dtype=STORED[kind], count=count, offset=at).float()
    blocks = torch.frombuffer(raw, dtype=torch.int8, count=count // 32 * 34, offset=at).view(-1, 34)
    scale = blocks[:, :2].contiguous().view(torch.float16).float()
    return scale * blocks[:, 2:]


def read(path):
    with open(path, "rb") as f:
        raw = bytearray(f.read())
    at = 0

    def take(fmt):
        nonlocal at
        v = struct.unpack_from("<" + fmt, raw, at)[0]
        at += struct.calcsize("<" + fmt)
        return v

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return raw[at - n:at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            inner, n = take("I"), take("Q")
            return [value(inner) for _ in range(n)]
        return take(SCALAR[kind])

    assert raw[:4] == b"GGUF"
    at = 8
    tensors, keys = take("Q"), take("Q")
    meta, info, out = {}, [], {}
    for _ in range(keys):
        k = text()
        meta[k] = value(take("I"))
    for _ in range(tensors):
        name = text()
        shape = [take("Q") for _ in range(take("I"))][::-1]
        info.append((name, shape, take("I"), take("Q")))
    align = meta.get("general.alignment", 32)
    base = (at + align - 1) // align * align
    for name, shape, kind, off in info:
        count = 1
        for s in shape:
            count *= s
        out[name] = floats(raw, kind, count, base + off).reshape(shape).clone()
    return meta, out
