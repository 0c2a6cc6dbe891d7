"""Reads the tensors and the metadata of a GGUF file (f32, f16 and bf16 tensors only)."""
import struct

import torch

SCALAR = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STORED = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}


def read(path):
    with open(path, "rb") as f:
        raw = f.read()
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
        t = torch.frombuffer(bytearray(raw), dtype=STORED[kind], count=count, offset=base + off)
        out[name] = t.float().view(shape).clone()
    return meta, out
