"""How the mini models want to be decoded and cached, as their files say. `settings.py MODEL.gguf` writes it into a finished
GGUF file; its tensors stay as they are, byte for byte."""
import os
import struct
import sys

CANVAS, BLOCK = 64, 16        # holds the longest worked answer of every task
DEEP_CANVAS = 144             # and of every puzzle
# Worked answers come from left to right: see "Fewest rows" in docs/decoding.md.
DECODE = {"block_length": 1, "first_threshold": 0.99}
DEEP_DECODE = {"block_length": BLOCK}
# SPA-Cache's budget: peak layer, and a share of the rows at the peak, in the first and in the last layer. So few layers all
# matter: budgets that fall towards the last layer, as the fit of `spa profile` does, cost web_of_lies 7 of 150 held-out
# generated problems.
BUDGET = {"llada": [1.0, 0.25, 0.25, 0.25], "dream": [1.0, 0.4, 0.4, 0.4]}
# Whether rows of the prompt compete, and those outside of the block at every token: see docs/decisions.md.
PROMPT = {"llada": False, "dream": True}


def generation_config(family, deep):
    return {"gen_length": DEEP_CANVAS if deep else CANVAS, "steps": DEEP_CANVAS if deep else CANVAS,
            **(DEEP_DECODE if deep else DECODE), "spa_budget": BUDGET[family], "spa_prompt": PROMPT[family]}


def keys(family, deep):
    """The same as `spa convert` writes it: key -> value as GGUF stores it."""
    c = generation_config(family, deep)
    uint, number, flag = (lambda v: struct.pack("<II", 4, v)), (lambda v: struct.pack("<If", 6, v)), (lambda v: struct.pack("<I?", 7, v))
    out = {"diffusion.gen_length": uint(c["gen_length"]), "diffusion.block_length": uint(c["block_length"])}
    if "first_threshold" in c:
        out["diffusion.first_threshold"] = number(c["first_threshold"])
    for name, share in zip(("peak_layer", "peak_ratio", "first_ratio", "last_ratio"), c["spa_budget"]):
        out["spa.budget." + name] = number(share)
    if c["spa_prompt"]:
        out["spa.prompt"] = flag(True)
    return out


SIZE = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def parts(raw):
    """(metadata as [(key, type and value)], descriptions of the tensors, their data)"""
    at = 24
    tensors, count = struct.unpack_from("<QQ", raw, 8)

    def text(at):
        return at + 8 + struct.unpack_from("<Q", raw, at)[0]

    def skip(kind, at):
        if kind == 8:
            return text(at)
        if kind == 9:
            inner, n = struct.unpack_from("<IQ", raw, at)
            at += 12
            for _ in range(n):
                at = skip(inner, at)
            return at
        return at + SIZE[kind]

    meta = []
    for _ in range(count):
        end = text(at)
        key, at = raw[at + 8:end].decode(), end
        end = skip(struct.unpack_from("<I", raw, at)[0], at + 4)
        meta.append((key, raw[at:end]))
        at = end
    begin = at
    for _ in range(tensors):
        at = text(at)
        at += 4 + 8 * struct.unpack_from("<I", raw, at)[0] + 12
    align = next((struct.unpack("<I", v[4:])[0] for k, v in meta if k == "general.alignment"), 32)
    return meta, raw[begin:at], raw[-(-at // align) * align:], align


def rewrite(path):
    with open(path, "rb") as f:
        raw = f.read()
    assert raw[:4] == b"GGUF"
    meta, described, data, align = parts(raw)
    old = dict(meta)
    family = old["general.architecture"][12:].decode()
    new = keys(family, struct.unpack("<I", old[family + ".block_count"][4:])[0] >= 20)
    ours = ("diffusion.gen_length", "diffusion.block_length", "diffusion.first_threshold", "spa.")
    meta = [(k, new.pop(k, v)) for k, v in meta if k in new or not k.startswith(ours)] + list(new.items())
    out = raw[:16] + struct.pack("<Q", len(meta))
    for k, v in meta:
        out += struct.pack("<Q", len(k)) + k.encode() + v
    out += described
    out += b"\0" * (-len(out) % align) + data
    with open(path + ".tmp", "wb") as f:
        f.write(out)
    os.replace(path + ".tmp", path)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        rewrite(path)
