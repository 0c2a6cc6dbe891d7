#!/usr/bin/env python3
"""Writes tiny random-weight models and what llama.cpp computes for them.

  npm pack @node-llama-cpp/linux-x64@3.22.1 && tar xzf node-llama-cpp-linux-x64-3.22.1.tgz
  tests/data/make_logits.py package/bins/linux-x64

For each model NAME, NAME.gguf holds the weights and NAME.logits.f32 the float32 logits
[64, vocab] (row-major, not shifted) of one bidirectional pass over the ids of tiny-ids.txt.
tiny-llada-hf is tiny-llada-F32 as a published folder: other names, another order of rows.
With `--check FOLDER` it compares the .logits.f32 files of a folder with its own results instead.
"""
import array
import ctypes
import glob
import json
import os
import random
import shutil
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
VOCAB, WIDTH, LAYERS, FFN, HEAD = 512, 64, 3, 128, 16


# ---- the models

def byte_alphabet():
    """The 256 printable characters that stand for bytes in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    table = {b: chr(b) for b in plain}
    table.update({b: chr(256 + k) for k, b in enumerate(rest)})
    return [table[b] for b in range(256)]


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def field(key, value):
    head = gguf_string(key)
    if isinstance(value, bool):
        return head + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return head + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return head + struct.pack("<If", 6, value)
    if isinstance(value, str):
        return head + struct.pack("<I", 8) + gguf_string(value)
    if isinstance(value[0], str):
        items = b"".join(gguf_string(x) for x in value)
        return head + struct.pack("<IIQ", 9, 8, len(value)) + items
    return head + struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


def q8_0(values):
    out = b""
    for i in range(0, len(values), 32):
        block = values[i:i + 32]
        scale = max(abs(x) for x in block) / 127
        inverse = 1 / scale if scale else 0.0
        out += struct.pack("<e32b", scale, *(round(x * inverse) for x in block))
    return out


def bf16_bits(x):
    """Nearest even; the values are finite."""
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16


def kv_heads_of(arch):
    return WIDTH // HEAD if arch == "llada" else 2


def random_tensors(arch, seed):
    """name -> (shape, values), every value exact in bfloat16."""
    rng = random.Random(seed)
    kv = kv_heads_of(arch) * HEAD
    shapes = {"token_embd.weight": (VOCAB, WIDTH), "output_norm.weight": (WIDTH,),
              "output.weight": (VOCAB, WIDTH)}
    for layer in range(LAYERS):
        b = f"blk.{layer}."
        shapes.update({
            b + "attn_norm.weight": (WIDTH,), b + "ffn_norm.weight": (WIDTH,),
            b + "attn_q.weight": (WIDTH, WIDTH), b + "attn_k.weight": (kv, WIDTH),
            b + "attn_v.weight": (kv, WIDTH), b + "attn_output.weight": (WIDTH, WIDTH),
            b + "ffn_gate.weight": (FFN, WIDTH), b + "ffn_up.weight": (FFN, WIDTH),
            b + "ffn_down.weight": (WIDTH, FFN)})
        if arch == "dream":
            shapes.update({b + "attn_q.bias": (WIDTH,), b + "attn_k.bias": (kv,),
                           b + "attn_v.bias": (kv,)})
    tensors = {}
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) == 2 else 1)
        # Wide enough that attention is not flat and every layer matters.
        scale = 1.5 / shape[1] ** 0.5 if len(shape) == 2 else 0.3
        offset = 1.0 if "norm" in name else 0.0
        bits = [bf16_bits(offset + scale * rng.gauss(0, 1)) << 16 for _ in range(count)]
        tensors[name] = shape, array.array("f", struct.pack(f"<{count}I", *bits))
    return tensors


def write_gguf(path, arch, dtype, tensors):
    heads, kv_heads = WIDTH // HEAD, kv_heads_of(arch)
    tokens = byte_alphabet() + [f"<t{i}>" for i in range(256, VOCAB - 1)] + ["<|mdm_mask|>"]
    types = [1] * 256 + [3] * (VOCAB - 256)
    tokens[256], types[256] = "he", 1
    fields = {
        "general.architecture": arch,
        "general.name": f"random {arch}",
        f"{arch}.context_length": 4096,
        f"{arch}.embedding_length": WIDTH,
        f"{arch}.block_count": LAYERS,
        f"{arch}.feed_forward_length": FFN,
        f"{arch}.attention.head_count": heads,
        f"{arch}.attention.head_count_kv": kv_heads,
        f"{arch}.rope.dimension_count": HEAD,
        f"{arch}.rope.freq_base": 500000.0 if arch == "llada" else 1000000.0,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5 if arch == "llada" else 1e-6,
        f"{arch}.attention.causal": False,
        f"{arch}.vocab_size": VOCAB,
        "diffusion.shift_logits": arch == "dream",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": ["h e"],
        "tokenizer.ggml.eos_token_id": VOCAB - 2,
        "tokenizer.ggml.mask_token_id": VOCAB - 1,
        "tokenizer.ggml.add_bos_token": False,
    }
    infos, data = b"", b""
    for name, (shape, values) in tensors.items():
        quantised = dtype == "Q8_0" and len(shape) == 2
        infos += gguf_string(name) + struct.pack("<I", len(shape))
        infos += struct.pack(f"<{len(shape)}Q", *reversed(shape))
        infos += struct.pack("<IQ", 8 if quantised else 0, len(data))
        data += q8_0(values) if quantised else values.tobytes()
        data += bytes(-len(data) % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(fields))
    head += b"".join(field(k, v) for k, v in fields.items()) + infos
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)


def write_llada_folder(folder, tensors):
    os.makedirs(folder, exist_ok=True)
    names = {"token_embd": "wte", "output_norm": "ln_f", "output": "ff_out",
             "attn_norm": "attn_norm", "ffn_norm": "ff_norm", "attn_q": "q_proj",
             "attn_k": "k_proj", "attn_v": "v_proj", "attn_output": "attn_out",
             "ffn_gate": "ff_proj", "ffn_up": "up_proj", "ffn_down": "ff_out"}
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        *block, kind, _ = name.split(".")
        if kind in ("attn_q", "attn_k"):  # a GGUF head holds its rotated pairs side by side
            rows = [values[r * WIDTH:(r + 1) * WIDTH] for r in range(shape[0])]
            values = array.array("f")
            for head in range(0, shape[0], HEAD):
                for r in [*range(0, HEAD, 2), *range(1, HEAD, 2)]:
                    values.extend(rows[head + r])
        prefix = f"model.transformer.blocks.{block[1]}." if block else "model.transformer."
        begin = len(data)
        data += struct.pack(f"<{len(values)}H", *map(bf16_bits, values))
        header[prefix + names[kind] + ".weight"] = {
            "dtype": "BF16", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder + "/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    config = {"architectures": ["LLaDAModelLM"], "model_type": "llada", "d_model": WIDTH,
              "n_heads": WIDTH // HEAD, "n_kv_heads": WIDTH // HEAD, "n_layers": LAYERS,
              "mlp_hidden_size": FFN, "vocab_size": VOCAB, "embedding_size": VOCAB, "rope": True,
              "rope_theta": 500000.0, "rms_norm_eps": 1e-5, "layer_norm_type": "rms",
              "activation_type": "silu", "block_type": "llama", "block_group_size": 1,
              "include_bias": False, "include_qkv_bias": False, "attention_layer_norm": False,
              "alibi": False, "weight_tying": False, "max_sequence_length": 4096,
              "mask_token_id": VOCAB - 1, "eos_token_id": 506, "torch_dtype": "bfloat16"}
    with open(folder + "/config.json", "w") as file:
        json.dump(config, file, indent=1)
        file.write("\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(f"{HERE}/mini_tokenizer/{name}", folder)


# ---- llama.cpp

class Params(ctypes.Structure):
    """llama_model_params or llama_context_params: passed through, with room to spare."""
    _fields_ = [("bytes", ctypes.c_uint8 * 512)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.c_void_p),
                ("embd", ctypes.c_void_p), ("pos", ctypes.c_void_p),
                ("n_seq_id", ctypes.c_void_p), ("seq_id", ctypes.c_void_p),
                ("logits", ctypes.c_void_p)]


class LlamaCpp:
    # Offset of flash_attn_type in llama_context_params of this release, the last of four enums that
    # are -1 by default. Flash attention would round K and V to half precision.
    FLASH_ATTENTION = 52

    def __init__(self, folder):
        ggml = ctypes.CDLL(glob.glob(folder + "/libggml.*so*")[0], mode=ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(glob.glob(folder + "/libllama.*so*")[0])
        ggml.ggml_backend_load_all_from_path(folder.encode())
        for name, result in [("llama_model_default_params", Params),
                             ("llama_context_default_params", Params),
                             ("llama_model_load_from_file", ctypes.c_void_p),
                             ("llama_init_from_model", ctypes.c_void_p),
                             ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float)),
                             ("llama_decode", ctypes.c_int32), ("llama_free", None),
                             ("llama_model_free", None), ("llama_set_causal_attn", None)]:
            getattr(self.lib, name).restype = result
        self.silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
            lambda level, text, data: None)
        self.lib.llama_log_set(self.silent, None)
        self.lib.llama_backend_init()

    def logits(self, path, ids, vocab):
        lib = self.lib
        model = ctypes.c_void_p(
            lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params()))
        params = lib.llama_context_default_params()
        flags = struct.unpack_from("<4i", bytes(params.bytes), self.FLASH_ATTENTION - 12)
        if flags != (-1, -1, -1, -1):
            sys.exit(f"llama_context_params has another layout here: {flags}")
        params.bytes[self.FLASH_ATTENTION:self.FLASH_ATTENTION + 4] = [0] * 4
        context = ctypes.c_void_p(lib.llama_init_from_model(model, params))
        if not model.value or not context.value:
            sys.exit(f"llama.cpp does not load {path}")
        lib.llama_set_causal_attn(context, ctypes.c_bool(False))
        n = len(ids)
        seq = (ctypes.c_int32 * 1)(0)
        arrays = [(ctypes.c_int32 * n)(*ids), (ctypes.c_int32 * n)(*range(n)),
                  (ctypes.c_int32 * n)(*[1] * n),
                  (ctypes.c_void_p * n)(*[ctypes.addressof(seq)] * n),
                  (ctypes.c_int8 * n)(*[1] * n)]
        token, pos, n_seq, seqs, wanted = map(ctypes.addressof, arrays)
        status = lib.llama_decode(context, Batch(n, token, None, pos, n_seq, seqs, wanted))
        if status != 0:
            sys.exit(f"llama_decode: {status}")
        out = array.array("f")
        for row in range(n):
            out.extend(lib.llama_get_logits_ith(context, row)[:vocab])
        lib.llama_free(context)
        lib.llama_model_free(model)
        return out


def main():
    llama = LlamaCpp(sys.argv[1])
    with open(HERE + "/tiny-ids.txt") as file:
        ids = [int(x) for x in file.read().split()]
    if sys.argv[2:3] == ["--check"]:
        for path in sorted(glob.glob(sys.argv[3] + "/tiny-*.gguf")):
            stored = array.array("f")
            with open(path.replace(".gguf", ".logits.f32"), "rb") as file:
                stored.frombytes(file.read())
            worst = max(abs(a - b) for a, b in zip(stored, llama.logits(path, ids, VOCAB)))
            print(f"{os.path.basename(path)}: largest difference {worst:.2g}")
        return
    for name in ("tiny-llada-F32", "tiny-dream-F32", "tiny-llada-Q8_0"):
        _, arch, dtype = name.split("-")
        path = f"{HERE}/{name}.gguf"
        tensors = random_tensors(arch, seed=1)
        write_gguf(path, arch, dtype, tensors)
        if name == "tiny-llada-F32":
            write_llada_folder(HERE + "/tiny-llada-hf", tensors)
        with open(f"{HERE}/{name}.logits.f32", "wb") as file:
            llama.logits(path, ids, VOCAB).tofile(file)


main()
