"""Byte-level BPE with the Qwen2 pre-tokenisation pattern, trained on the generated tasks.

`build()` writes tokenizer.json in the Hugging Face layout; `Tokenizer` is the small Python side of it used
for training (the texts are ASCII, so the pattern is too). The two model families differ in their special
tokens and chat template only: the first SPECIALS ids after the vocabulary have the same roles in both.
"""
import collections
import json
import math
import random
import re

import tasks

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
ASCII = re.compile(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+[\r\n]*"
                   r"|\s*[\r\n]+|\s+(?!\S)|\s+")

FAMILY = {
    "llada": {
        "specials": ["<|endoftext|>", "<|startoftext|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                     "<|mdm_mask|>"],
        "before": "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\n",
        "after": "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        "end": "<|eot_id|>", "mask": "<|mdm_mask|>", "pad": "<|endoftext|>",
        "template": "{% for m in messages %}{{ (bos_token if loop.first else '') + '<|start_header_id|>' + m['role'] + "
                    "'<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if "
                    "add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        "config": {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>",
                   "mask_token": "<|mdm_mask|>"},
    },
    "dream": {
        "specials": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"],
        "before": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
        "after": "<|im_end|>\n<|im_start|>assistant\n",
        "end": "<|im_end|>", "mask": "<|mask|>", "pad": "<|endoftext|>",
        "template": "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' "
                    "}}{% endif %}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + "
                    "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        "config": {"bos_token": None, "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "mask_token": "<|mask|>"},
    },
}


def byte_table():
    """The GPT-2 printable stand-in for every byte."""
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, extra = {}, 0
    for b in range(256):
        if b in keep:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + extra)
            extra += 1
    return table


BYTES = byte_table()


def train_bpe(vocab_size, n_samples=24000, seed=7):
    """Every word of the tasks counts the same, so that rare nouns become single tokens as well as "the".

    Names count little: a few frequent pieces are enough, because they are copied piece by piece.
    """
    rng, raw, names = random.Random(seed), collections.Counter(), collections.Counter()
    order = list(tasks.TASKS)
    for i in range(n_samples):
        task = order[i % len(order)]
        for text in tasks.sample(rng, task):
            (names if task == "web_of_lies" else raw).update(ASCII.findall(text))
    for w in " says tells lies tell Does Question Steps Answer truth user assistant".split():
        raw[" " + w] += 999
        raw[w] += 999
    raw.update({" " + tasks.word(n): 999 for n in range(-30, 40)})
    raw.update({w: 999 for w in ("\n", "\n\n", "?", ":", ".")})
    weight = {w: 1 + 1e-4 * math.sqrt(n) for w, n in raw.items() if n >= 25}
    for w, n in names.items():
        weight.setdefault(w, 1e-3 * n)
    words = {"".join(BYTES[b] for b in w.encode()): n for w, n in weight.items()}
    vocab = {BYTES[b]: i for i, b in enumerate(range(256))}
    merges, split = [], {w: list(w) for w in words}
    while len(vocab) < vocab_size:
        pairs = collections.Counter()
        for w, n in words.items():
            s = split[w]
            for a, b in zip(s, s[1:]):
                pairs[a, b] += n
        if not pairs:
            break
        a, b = max(pairs, key=lambda k: (pairs[k], k))
        merges.append((a, b))
        vocab[a + b] = len(vocab)
        for w, s in split.items():
            if a in s:
                i, out = 0, []
                while i < len(s):
                    if i + 1 < len(s) and s[i] == a and s[i + 1] == b:
                        out.append(a + b)
                        i += 2
                    else:
                        out.append(s[i])
                        i += 1
                split[w] = out
    return vocab, merges


def build(path, family, vocab_size=1274):
    """vocab_size leaves out the special tokens, which follow."""
    write(path, family, *train_bpe(vocab_size))


def write(path, family, vocab, merges):
    added = [{"id": len(vocab) + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, t in enumerate(FAMILY[family]["specials"])]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    doc = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}, level]},
        "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
                  "vocab": vocab, "merges": [f"{a} {b}" for a, b in merges]},
    }
    with open(path, "w") as f:
        json.dump(doc, f, ensure_ascii=False, indent=0)


class Tokenizer:
    def __init__(self, path, family):
        with open(path) as f:
            doc = json.load(f)
        self.family = FAMILY[family]
        self.vocab = doc["model"]["vocab"]
        self.rank = {tuple(m.split(" ")): i for i, m in enumerate(doc["model"]["merges"])}
        self.special = {t["content"]: t["id"] for t in doc["added_tokens"]}
        self.size = len(self.vocab) + len(self.special)
        self.text = {i: t for t, i in self.vocab.items()}
        self.text.update({i: t for t, i in self.special.items()})
        self.unbyte = {c: b for b, c in BYTES.items()}
        self.mask, self.pad = self.special[self.family["mask"]], self.special[self.family["pad"]]
        self.cache = {}
        self.split_special = re.compile("(" + "|".join(re.escape(s) for s in self.special) + ")")

    def word(self, w):
        if w not in self.cache:
            s = [BYTES[b] for b in w.encode()]
            while len(s) > 1:
                best = min(range(len(s) - 1), key=lambda i: self.rank.get((s[i], s[i + 1]), 1 << 30))
                if (s[best], s[best + 1]) not in self.rank:
                    break
                s[best:best + 2] = [s[best] + s[best + 1]]
            self.cache[w] = [self.vocab[t] for t in s]
        return self.cache[w]

    def encode(self, text):
        ids = []
        for part in self.split_special.split(text):
            if part in self.special:
                ids.append(self.special[part])
            else:
                for w in ASCII.findall(part):
                    ids += self.word(w)
        return ids

    def prompt(self, question):
        return self.encode(self.family["before"] + question + self.family["after"])

    def response(self, answer):
        return self.encode(answer + self.family["end"])

    def decode(self, ids):
        out = b""
        for i in ids:
            t = self.text[i]
            out += t.encode() if t in self.special else bytes(self.unbyte[c] for c in t)
        return out.decode(errors="replace")

    def answer(self, ids):
        """What an evaluator extracts: the text after the last "Answer: " before the end of the turn."""
        text = self.decode(ids)
        for stop in (self.family["end"], self.family["pad"]):
            text = text.split(stop)[0]
        return text.split("Answer: ")[-1].strip()
