#!/usr/bin/env python3
"""Packs the merges.txt of a byte-level vocabulary whose ids follow from it:

  tests/data/pack_merges.py merges.txt vocab.json > merges.bits

Token 256 + i is what merge i makes of two earlier tokens, so the two ids of merge i are written in
as few bits as 255 + i needs, lowest bit first. tests/text/dream_folder.h unpacks them.
"""
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    merges = [line.split(" ") for line in file.read().splitlines()[1:]]
with open(sys.argv[2], encoding="utf-8") as file:
    vocab = json.load(file)
total = shift = 0
out = bytearray()
for i, (left, right) in enumerate(merges):
    width = (255 + i).bit_length()
    assert vocab[left + right] == 256 + i and max(vocab[left], vocab[right]) < 256 + i
    total |= (vocab[left] | vocab[right] << width) << shift
    shift += 2 * width
    while shift >= 8:
        out.append(total & 255)
        total >>= 8
        shift -= 8
if shift:
    out.append(total)
sys.stdout.buffer.write(out)
