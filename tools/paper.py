#!/usr/bin/env python3
"""Makes the accuracy tables of the documents: `tools/paper.py TABLE -m MODEL` prints one in Markdown, `tools/paper.py all
--bbh FOLDER` every one of them, each under the command that makes it alone.

Every cell is one `spa eval`. Its samples are kept in --work, so an interrupted table goes on where it stopped. All cells
of a table answer the same questions: differences are paired by question, p is McNemar's exact test (two-sided).
"""
import argparse
import json
import math
import os
import shlex
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BBH = ("boolean_expressions", "dyck_languages", "web_of_lies", "navigate", "tracking_shuffled_objects_three_objects",
       "object_counting")
BUDGETS = ("0.05", "0.08", "0.12", "0.16", "0.25")
# Half of fast-dual's rows, chosen on other problems (docs/results.md).
HALF = dict.fromkeys(("minidream.gguf", "minideepdream.gguf"), "spa:rho=0.14,min-drift=0.007")
MAIN = ("none", "fast-dual", "spa", "HALF", "spa:identifier=changed,rho=0.2", "spa:identifier=random,rho=0.2")
TABLES = {
    "main": "default SPA-Cache, and with half of fast-dual's rows, beside none, fast-dual and two controls",
    "parallel": "the same with several tokens per step (--threshold 0.9)",
    "caches": "every cache with its defaults",
    "identifiers": "what rows are chosen by, for five budgets, with the controls",
    "ranks": "the rank of the singular proxies with a scarce budget",
    "budget": "a bell fitted by `spa profile` on other problems against the same rows in every layer",
    "drift": "drift per layer, and the paper's theory on real rows",
    "rules": "commit rules with the default cache (docs/decoding.md)",
    "exact": "the defaults against one token per step without a cache (docs/decoding.md)",
    "tasks": "each task without a cache (models/README.md)",
    "all": "every table of docs/results.md, docs/decoding.md and models/README.md",
}
LEFT_TO_RIGHT = ["--decode", "", "--caches", "none", "spa"]
# The tables of the documents, in their order. {bbh} is the folder of the published questions.
ALL = (
    ["main", "-m", "minideep", "--problems", "puzzles", "--count", "100", "--caches", "none", "fast-dual", "spa", "HALF",
     *(f"spa:identifier={i},rho=0.2" for i in ("singular", "changed", "random"))],
    ["main", "-m", "minideepdream", "--problems", "puzzles", "--count", "50", "--caches", "none", "fast-dual", "spa", "HALF",
     "spa:identifier=changed,rho=0.2"],
    ["main", "-m", "minideep", "--problems", "puzzles", "--count", "20", "--decode", "--block-length 144", "--caches", "none",
     "fast-dual", "spa"],
    *(["main", "-m", m, *bbh] for bbh in ([], ["--bbh", "{bbh}"]) for m in ("minillada", "minidream")),
    *(["main", "-m", m, "--count", "50", "--decode", "--gen-length 256 --block-length 16", "--caches", "none", "fast-dual", "spa",
       "HALF"] for m in ("minillada", "minidream")),
    *(["main", "-m", m, *LEFT_TO_RIGHT, *bbh] for m in ("minillada", "minidream") for bbh in ([], ["--bbh", "{bbh}"])),
    *(["parallel", "-m", m, "--count", "50"] for m in ("minillada", "minidream")),
    *([table, "-m", "minillada", "--count", "50"] for table in ("identifiers", "ranks", "budget")),
    ["drift", "-m", "minideep", "--problems", "puzzles", "--count", "5", "--seed", "4242"],
    ["rules", "-m", "minillada", "--count", "50", "--seed", "912", "--decode", ""],
    *(["exact", "-m", m, "--decode", "", *bbh] for m in ("minillada", "minidream") for bbh in ([], ["--bbh", "{bbh}"])),
    ["tasks", "-m", "minillada", "--bbh", "{bbh}"],
)
RULES = ("--cache none --block-length 16", "--block-length 16", "--block-length 16 --threshold 0.9",
         "--block-length 16 --threshold 0.99", "--block-length 16 --threshold 0.999",
         "--block-length 16 --threshold 0.9 --credit 0.7", "--block-length 16 --threshold 0.9 --slide greedy",
         "--block-length 16 --factor 1", "--block-length 16 --hierarchical 0.4", "--block-length 16 --entropy-bound 0.01",
         "--block-length 16 --klass 0.01 --threshold 0.9", "--block-length 16 --wino 0.9", "--block-length 16 --saber 2",
         "--block-length 1", "--block-length 1 --window 0", "", "--first-threshold 0.98", "--cache none")


def lost_won(base, other):
    """Questions only `base` or only `other` answered rightly, and McNemar's exact p."""
    lost, won = (sum(x and not y for x, y in zip(a, b)) for a, b in ((base, other), (other, base)))
    n, k = lost + won, min(lost, won)
    return lost, won, min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2 ** n)


def pair(base, other):
    if base is other:
        return ""
    lost, won, p = lost_won(base, other)
    return f"-{lost} +{won}, p {p:.2g}"


class Runner:
    def __init__(self, a):
        self.a, self.args = a, []
        os.makedirs(a.work, exist_ok=True)
        if a.bbh:
            self.name = "bbh"
            self.args = ["--task", "bbh", "--limit", str(a.limit), "--data", *(os.path.join(a.bbh, t + ".json") for t in BBH)]
        else:
            self.name = f"{a.problems}-{a.seed}-{a.count}"
            self.args = ["--task", "jsonl", "--extract", r"Answer: *([^\n]*)", "--data", self.problems(a.seed, a.count)]

    def problems(self, seed, count):
        path = os.path.join(self.a.work, f"{self.a.problems}-{seed}-{count}.jsonl")
        if not os.path.exists(path):
            text = subprocess.run([sys.executable, os.path.join(HERE, "minidlm", self.a.problems + ".py"), "--count", str(count),
                                   "--seed", str(seed)], check=True, capture_output=True, text=True).stdout
            with open(path + ".tmp", "w") as f:
                f.write(text)
            os.replace(path + ".tmp", path)
        return path

    def eval(self, cache, *decode):
        """(right per question, share of the rows computed, rows per token after the first step)"""
        name, _, options = cache.partition(":")
        decode += tuple(self.a.decode.split())
        file = "_".join((os.path.basename(self.a.model), self.name, cache, *decode)).replace("/", "-")
        command = [self.a.spa, "eval", "-m", self.a.model, *self.args, "--batch", str(self.a.batch), "--cache", name, *decode,
                   *(["-t", str(self.a.threads)] if self.a.threads else []),
                   "--samples", os.path.join(self.a.work, file + ".jsonl"), "--json"]
        for option in filter(None, options.split(",")):
            command += ["--cache-opt", option]
        print("+", " ".join(command), file=sys.stderr, flush=True)
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if run.returncode:
            sys.exit(run.returncode)
        total = self.total = json.loads(run.stdout)["total"]
        with open(os.path.join(self.a.work, file + ".jsonl")) as f:
            samples = [s for s in map(json.loads, f) if "correct" in s]
        samples.sort(key=lambda s: s["id"])
        self.samples = samples
        return [s["correct"] for s in samples], total["rows_fraction"], total["rows_per_token"]


def show(title, header, rows):
    print(f"\n{title}\n")
    print("| " + " | ".join(header) + " |")
    print("|---" * len(header) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def accuracy(right):
    share = sum(right) / len(right)
    return f"{100 * share:.2f}% ± {100 * math.sqrt(share * (1 - share) / max(1, len(right) - 1)):.2f}"


def against_baselines(run, title, caches, *decode):
    cells = {c: run.eval(c, *decode) for c in caches}
    bases = [c for c in ("none", "fast-dual") if c in cells]
    rows = [(c, accuracy(right), f"{100 * share:.1f}%", f"{per:.2f}", *(pair(cells[b][0], right) for b in bases))
            for c, (right, share, per) in cells.items()]
    show(title, ("cache", "right", "rows", "rows per token", *("against " + b for b in bases)), rows)


def identifiers(run, title, names=("attn-output", "singular", "value"), controls=("changed", "random", "age", "local")):
    rows = []
    for rho in BUDGETS:
        cells = {n: run.eval(f"spa:rho={rho},identifier={n},min-drift=0") for n in names + controls}
        for n, (right, share, _) in cells.items():
            rows.append((rho, n, accuracy(right), f"{100 * share:.1f}%",
                         *(pair(right, cells[best][0]) if n != best else "" for best in ("attn-output", "singular"))))
    show(title, ("rho", "identifier", "right", "rows", "attn-output against it", "singular against it"), rows)


def ranks(run, title, rho="0.12"):
    cells = {f"rank {r}": run.eval(f"spa:rho={rho},identifier=singular,rank={r}") for r in (4, 8, 16, 32, 64)}
    cells["value (no proxy)"] = run.eval(f"spa:rho={rho},identifier=value")
    cells["changed"] = run.eval(f"spa:rho={rho},identifier=changed")
    base = cells["value (no proxy)"][0]
    show(title + f", rho={rho}", ("identifier", "right", "rows", "against value"),
         [(n, accuracy(right), f"{100 * share:.1f}%", pair(base, right)) for n, (right, share, _) in cells.items()])


def budget(run, title):
    """The peak of the bell is set so that its mean is the uniform budget; the rows computed say whether that held."""
    a, rows = run.a, []
    other = run.problems(a.seed + 1, 10)
    profile = os.path.join(a.work, os.path.basename(a.model) + ".profile.json")
    fitted = subprocess.run([a.spa, "profile", "-m", a.model, "--task", "jsonl", "--data", other, "--limit", "0", "--out", profile,
                             "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    bell = json.loads(fitted)["budget"]
    for rho in BUDGETS:
        peak = bell["peak_ratio"] / bell["mean_ratio"] * float(rho)
        uniform = run.eval(f"spa:rho={rho},min-drift=0")
        adaptive = run.eval(f"spa:profile={profile},rho-peak={min(1, peak):.4f},min-drift=0")
        for n, (right, share, _) in (("uniform", uniform), ("fitted bell", adaptive)):
            rows.append((rho, n, accuracy(right), f"{100 * share:.2f}%", pair(uniform[0], right)))
    show(title, ("mean", "budget", "right", "rows", "against uniform"), rows)


def drift(run, title):
    """The profile as `spa profile` prints it, and its part about the theory over all layers."""
    a = run.a
    command = [a.spa, "profile", "-m", a.model, "--task", "jsonl", "--data", run.problems(a.seed, a.count), "--limit", "0", "--out",
               os.path.join(a.work, os.path.basename(a.model) + ".drift.json"), *(["-t", str(a.threads)] if a.threads else [])]
    text, theory = (subprocess.run(command + more, check=True, stdout=subprocess.PIPE, text=True).stdout for more in ([], ["--json"]))
    print(f"\n{title}\n\n```\n{text.rstrip()}\n```")
    theory = json.loads(theory)["theory"]
    rows = []
    for name, key, form in (("difference of the proxy's cosine and the value's", "proxy_error", "{:.4f}"),
                            ("largest difference as a share of the lemma's bound", "largest_share_of_bound", "{:.1%}"),
                            ("rows that moved, unseen by their value", "moved_unseen_by_value", "{:.0%}")):
        v = theory[key]
        rows.append((name, *(form.format(x) for x in (min(v), sum(v) / len(v), max(v)))))
    show("theory", ("", "least", "mean", "largest"), rows)


def rules(run, title):
    rows = []
    for rule in RULES:
        cache, options = "spa", rule.split()
        if "--cache" in options:
            cache = options.pop(options.index("--cache") + 1)
            options.remove("--cache")
        right, _, per = run.eval(cache, *options)
        rows.append((f"`{rule}`" if rule else "none: the default of this model", f"{100 * sum(right) / len(right):.1f}%", f"{per:.2f}",
                     f"{run.total['tokens_per_step']:.1f}"))
    show(title, ("options", "right", "rows per token", "tokens per step"), rows)


def exact(run, title):
    """What the defaults of model and cache cost together."""
    base, right = run.eval("none", "--exact", "on")[0], run.eval("spa")[0]
    show(title, ("default", "--exact on", "lost, won"), [(accuracy(right), accuracy(base), pair(base, right))])


def tasks(run, title):
    right, _, _ = run.eval("none")
    cells = {}
    for sample in run.samples:
        cells.setdefault(sample["id"].rpartition("/")[0], []).append(sample["correct"])
    show(title, ("task", "right"), [(n, accuracy(cells[n])) for n in BBH] + [("all", accuracy(right))])


def every(rest):
    """Runs this program once per table, so that each is what its command alone makes."""
    ap = argparse.ArgumentParser(prog="paper.py all")
    ap.add_argument("--bbh", metavar="FOLDER", required=True)
    ap.add_argument("--models", default=os.path.join(HERE, "..", "models"), metavar="FOLDER")
    ap.add_argument("--list", action="store_true", help="only print the commands")
    a, more = ap.parse_known_args(rest)
    for table in ALL:
        words = [os.path.join(a.models, w + ".gguf") if w.startswith("mini") else w.format(bbh=a.bbh) for w in table]
        shown = [f"models/{w}.gguf" if w.startswith("mini") else w.format(bbh="FOLDER") for w in table]
        print("\n## tools/paper.py " + shlex.join(shown), flush=True)
        if not a.list:
            subprocess.run([sys.executable, os.path.abspath(__file__), *words, *more], check=True)


def main():
    if sys.argv[1:2] == ["all"]:
        return every(sys.argv[2:])
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                 epilog="tables:\n" + "\n".join(f"  {n:12} {t}" for n, t in TABLES.items()))
    ap.add_argument("table", choices=TABLES)
    ap.add_argument("-m", "--model", required=True)
    ap.add_argument("--spa", default=os.path.join(HERE, "..", "build", "release", "spa"))
    ap.add_argument("--caches", nargs="+", default=MAIN, help="of main and parallel; HALF: half of fast-dual's rows")
    ap.add_argument("--bbh", metavar="FOLDER", help="published questions; without it generated ones")
    ap.add_argument("--limit", type=int, default=150, help="published questions per task")
    ap.add_argument("--count", type=int, default=334, help="generated problems per task")
    ap.add_argument("--problems", choices=("tasks", "puzzles"), default="tasks", help="of the small models or of the deep one")
    ap.add_argument("--decode", default="--block-length 16", metavar="OPTIONS", help="for spa eval (default: blocks of 16 tokens)")
    ap.add_argument("-t", "--threads", type=int, help="of spa eval; no answer depends on them")
    ap.add_argument("--seed", type=int, default=20261117, help="of the generated problems")
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--work", default="paper-work", help="folder of problems and samples")
    a = ap.parse_args()
    half = HALF.get(os.path.basename(a.model), "spa:min-drift=0.015,outside=1")
    a.caches = [half if c == "HALF" else c for c in a.caches]
    run = Runner(a)
    asked = f"{a.limit} published questions" if a.bbh else f"{a.count} generated problems"
    title = f"{os.path.basename(a.model)}, {asked} of each task" + (", " + a.decode if a.decode else "")
    if a.table == "main":
        against_baselines(run, title, a.caches)
    elif a.table == "parallel":
        against_baselines(run, title + ", threshold 0.9", a.caches, "--threshold", "0.9")
    elif a.table == "caches":
        caches = ("none", "fast-dual", "spa", "fast-prefix", "dllm", "dkv-decode", "dkv-greedy", "d2", "elastic")
        against_baselines(run, title, caches)
    else:
        globals()[a.table](run, title)


if __name__ == "__main__":
    main()
