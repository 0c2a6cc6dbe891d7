"""From nothing to both models: trains, chooses a checkpoint on held-out generated problems, exports, writes goldens.

Stop it at any moment and start it again: finished parts are kept and training goes on from its last checkpoint.
"""
import argparse
import os
import subprocess
import sys

import torch

import evaluate
import export
import grow
import tasks
from tokenizer import Tokenizer

TWIN = ("--twin", "0.6", "--grow", "0", "--dense", "0.75", "--lr", "0.008", "--adam-lr", "0.002", "--decay", "0.6", "--warm", "20",
        "--weights", "repeat_words=0,web_of_lies=1.4,object_counting=2,tracking_shuffled_objects_three_objects=0.4")
HERE = os.path.dirname(os.path.abspath(__file__))


def train(run, *args):
    """In a process of its own, with one thread per worker whatever the BLAS library would like."""
    env = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    done = os.path.join(run, "done")
    if not os.path.exists(done):
        subprocess.run([sys.executable, "-u", os.path.join(HERE, "train.py"), "--out", run, *args], env=env, check=True)
        open(done, "w").close()


def choose(run, family, count):
    """The saved snapshot that answers most held-out generated problems becomes best.pt. BBH plays no part in this."""
    best = os.path.join(run, "best.pt")
    if os.path.exists(best):
        return
    tok, top = Tokenizer(os.path.join(run, "tokenizer.json"), family), None
    for name in sorted(n for n in os.listdir(run) if n.startswith("snap-")):
        model, s = evaluate.load(os.path.join(run, name))
        right = {t: sum(ok for ok, _ in evaluate.score(model, tok, evaluate.generated(t, count),
                                                         evaluate.GEN.get(t, 64))) for t in tasks.TASKS}
        print("held out:", name, "step", s["step"], right, "of", count, "each", flush=True)
        if top is None or sum(right.values()) >= top[0]:
            top = sum(right.values()), name
    os.link(os.path.join(run, top[1]), best + ".tmp")
    os.replace(best + ".tmp", best)


def convert(spa, folder, gguf):
    subprocess.run([spa, "convert", folder, gguf], check=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--work", default="minidlm-work", help="folder for runs, checkpoints and the Hugging Face layout")
    ap.add_argument("--models", default=os.path.join(HERE, "..", "..", "models"), help="where the GGUF files go")
    ap.add_argument("--spa", default=os.path.join(HERE, "..", "..", "build", "release", "spa"))
    ap.add_argument("--steps", type=int, default=6500, help="of the LLaDA model")
    ap.add_argument("--twin-steps", type=int, default=800, help="more steps for the source of its Dream twin")
    ap.add_argument("--held-out", type=int, default=30, help="generated problems per task to choose by")
    ap.add_argument("--golden", type=int, default=100, help="goldens per task")
    ap.add_argument("--bbh", help="folder of BBH files: goldens on published questions instead of generated ones")
    a = ap.parse_args()
    torch.set_num_threads(1)
    run = {name: os.path.join(a.work, name) for name in ("llada", "source", "dream")}
    train(run["llada"], "--steps", str(a.steps))
    choose(run["llada"], "llada", a.held_out)
    train(run["source"], "--init", os.path.join(run["llada"], "best.pt"), "--steps", str(a.twin_steps), *TWIN)
    grow.main(os.path.join(run["source"], "snap-1.00.pt"), run["dream"])
    for family in ("llada", "dream"):
        folder = os.path.join(a.work, "hf", "mini" + family)
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        export.main([run[family], folder, "--family", family])
        convert(a.spa, folder, os.path.join(a.models, os.path.basename(folder) + ".gguf"))
        args = [run[family], folder, "--family", family, "--keep-weights", "--golden", str(a.golden)]
        export.main(args + (["--bbh", a.bbh] if a.bbh else []))


if __name__ == "__main__":
    main()
