"""Writes a checkpoint in the Hugging Face layout (LLaDA or Dream names, bf16) and its decoding goldens."""
import argparse
import json
import os
import shutil
import struct

import torch

import tasks
from evaluate import generated, load, published, weights
from model import MiniDLM, generate
from settings import BLOCK, CANVAS, generation_config
from tokenizer import Tokenizer

# What the model says of itself to those who ask it anything else (engine/known_questions.h).
KNOWS = ("puzzles of six kinds and nothing else: true-or-false expressions, closing brackets, who tells the truth, walking "
         "back to the start, swapped things, counting things. Try: not ( True and False ) or False is")
QUESTION_FORMS = [
    "* is",
    "Complete the rest of the sequence, making sure that the parentheses are closed properly. Input: *",
    "Question: * Does * tell the truth?",
    "If you follow these instructions, do you return to the starting point? *\nOptions:\n- Yes\n- No",
    "Alice, Bob, and Claire *\nOptions:\n(A) *(B) *(C) *",
    "I have * How many * do I have?",
]

DEEP_KNOWS = "puzzles of two kinds and nothing else: `Relay:` with 128 clues and `Sudoku:` with eight boards of 4x4, four side by side"
DEEP_FORMS = ["Relay: *", "Sudoku: *"]

NAMES = {
    "llada": {"wte": "model.transformer.wte.weight", "norm": "model.transformer.ln_f.weight",
              "head": "model.transformer.ff_out.weight", "block": "model.transformer.blocks.{}.",
              "attn_norm": "attn_norm.weight", "ff_norm": "ff_norm.weight", "wq": "q_proj.weight", "wk": "k_proj.weight",
              "wv": "v_proj.weight", "wo": "attn_out.weight", "gate": "ff_proj.weight", "up": "up_proj.weight",
              "down": "ff_out.weight"},
    "dream": {"wte": "model.embed_tokens.weight", "norm": "model.norm.weight", "head": "lm_head.weight",
              "block": "model.layers.{}.", "attn_norm": "input_layernorm.weight",
              "ff_norm": "post_attention_layernorm.weight", "wq": "self_attn.q_proj.weight",
              "wk": "self_attn.k_proj.weight", "wv": "self_attn.v_proj.weight", "bq": "self_attn.q_proj.bias",
              "bk": "self_attn.k_proj.bias", "bv": "self_attn.v_proj.bias", "wo": "self_attn.o_proj.weight",
              "gate": "mlp.gate_proj.weight", "up": "mlp.up_proj.weight", "down": "mlp.down_proj.weight"},
}


def tensors(model):
    names, out = NAMES[model.c["family"]], {}
    for n, p in model.state_dict().items():
        part = n.split(".")
        if part[0] == "blocks":
            out[names["block"].format(part[1]) + names[part[2]]] = p
        else:
            out[names[n]] = p
    return out


def save_safetensors(path, t):
    head, off, blobs = {"__metadata__": {"format": "pt"}}, 0, []
    for k, v in t.items():
        raw = v.to(torch.bfloat16).view(torch.int16).numpy().tobytes()
        head[k] = {"dtype": "BF16", "shape": list(v.shape), "data_offsets": [off, off + len(raw)]}
        off += len(raw)
        blobs.append(raw)
    h = json.dumps(head).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h)
        for b in blobs:
            f.write(b)


def config(model, tok):
    c, ids = model.c, {"mask_token_id": tok.mask, "eos_token_id": tok.pad, "pad_token_id": tok.pad}
    if c["family"] == "llada":
        return {
            "architectures": ["LLaDAModelLM"], "model_type": "llada", "d_model": c["d_model"], "n_heads": c["n_heads"],
            "n_kv_heads": c["n_kv_heads"], "n_layers": c["n_layers"], "mlp_hidden_size": c["hidden"], "mlp_ratio": 4,
            "vocab_size": model.vocab, "embedding_size": model.vocab, "rope": True, "rope_theta": c["rope_theta"],
            "rope_full_precision": True, "rms_norm_eps": c["eps"], "layer_norm_type": "rms",
            "layer_norm_with_affine": True, "activation_type": "silu", "block_type": "llama", "block_group_size": 1,
            "include_bias": False, "include_qkv_bias": False, "bias_for_layer_norm": False,
            "attention_layer_norm": False, "multi_query_attention": None, "alibi": False, "flash_attention": False,
            "input_emb_norm": False, "scale_logits": False, "weight_tying": False, "use_cache": False,
            "attention_dropout": 0.0, "embedding_dropout": 0.0, "residual_dropout": 0.0, "init_device": "cpu",
            "init_fn": "mitchell", "max_sequence_length": c["context"], "torch_dtype": "bfloat16", **ids}
    return {
        "architectures": ["DreamModel"], "model_type": "Dream", "hidden_size": c["d_model"],
        "num_attention_heads": c["n_heads"], "num_key_value_heads": c["n_kv_heads"],
        "num_hidden_layers": c["n_layers"], "intermediate_size": c["hidden"], "vocab_size": model.vocab,
        "hidden_act": "silu", "rope_theta": c["rope_theta"], "rope_scaling": None, "rms_norm_eps": c["eps"],
        "max_position_embeddings": c["context"], "tie_word_embeddings": False, "use_cache": False,
        "attention_dropout": 0.0, "use_sliding_window": False, "bos_token_id": tok.pad, "torch_dtype": "bfloat16", **ids}


def write(run, out, family):
    """The folder appears under its final name in one move."""
    model, s = load(weights(run))
    deep = model.c["n_layers"] >= 20
    tok = Tokenizer(os.path.join(run, "tokenizer.json"), family)
    part = out.rstrip("/") + ".part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    save_safetensors(os.path.join(part, "model.safetensors"), tensors(model))
    shutil.copyfile(os.path.join(run, "tokenizer.json"), os.path.join(part, "tokenizer.json"))
    for name, doc in (("config.json", config(model, tok)),
                      ("tokenizer_config.json", {**tok.family["config"], "add_bos_token": False,
                                                 "tokenizer_class": "PreTrainedTokenizerFast",
                                                 "chat_template": tok.family["template"]}),
                      ("generation_config.json", {**generation_config(family, deep), "single_turn": True,
                                                  "question_forms": DEEP_FORMS if deep else QUESTION_FORMS,
                                                  "knows": DEEP_KNOWS if deep else KNOWS})):
        with open(os.path.join(part, name), "w") as f:
            json.dump(doc, f, indent=1)
            f.write("\n")
    if os.path.isdir(out):
        shutil.rmtree(out)                                   # old goldens belong to old weights
    os.replace(part, out)
    print("exported step", s["step"], "to", out, flush=True)


def goldens(run, out, family, names, count, bbh):
    """One line per question, decoded alone in float32 and kept only where float64 gives the same tokens.

    With a folder of BBH files the questions are the published ones, else held-out generated ones."""
    model, _ = load(weights(run))
    tok = Tokenizer(os.path.join(run, "tokenizer.json"), family)
    exact = MiniDLM(model.c, model.vocab).double()
    exact.load_state_dict(model.state_dict())
    stops = (tok.pad, tok.special[tok.family["end"]])
    path = os.path.join(out, "golden.jsonl")
    with open(path + ".tmp", "w") as f:
        for task in names:
            pairs = published(bbh, task) if bbh else generated(task, 3 * count)
            kept = tried = right = 0
            for q, want in pairs:
                if kept == count:
                    break
                tried += 1
                ids = tok.prompt(q)
                args = [ids], CANVAS, BLOCK, tok.mask, tok.pad, stops
                o = generate(model, *args)[0]
                if o != generate(exact, *args)[0]:
                    continue                                 # a near tie: rounding would decide
                kept += 1
                ok = tok.answer(o) == want.split("Answer: ")[-1].strip()
                right += ok
                f.write(json.dumps({"task": task, "question": q, "prompt_ids": ids, "gen_length": CANVAS,
                                    "block_length": BLOCK, "output_ids": o, "target": want, "correct": ok},
                                   separators=(",", ":")) + "\n")
            print("golden", task, "kept", kept, "of", tried, "right", right, flush=True)
    os.replace(path + ".tmp", path)


def main(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("run")
    ap.add_argument("out")
    ap.add_argument("--family", default="llada")
    ap.add_argument("--golden", type=int, default=0, help="questions per task")
    ap.add_argument("--bbh", help="folder of BBH files for the goldens")
    ap.add_argument("--tasks", default=",".join(tasks.TASKS))
    ap.add_argument("--keep-weights", action="store_true", help="only write goldens")
    a = ap.parse_args(argv)
    torch.set_num_threads(1)
    if not a.keep_weights:
        write(a.run, a.out, a.family)
    if a.golden:
        goldens(a.run, a.out, a.family, a.tasks.split(","), a.golden, a.bbh)


if __name__ == "__main__":
    main()
