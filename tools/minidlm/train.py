"""Trains a mini DLM: masked-diffusion loss on worked answers, CPU only, resumable at any moment.

Two single-threaded workers share one model: at this width a process per core is twice as fast as two
threads in one process. Each worker computes gradients on its own examples and updates half of the weights.
Matrices are trained with Muon (momentum, orthogonalised), the rest with Adam.
"""
import argparse
import os
import random
import time

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F

import grow
import tasks
from model import SHAPE, MiniDLM, plant_copying
from tokenizer import Tokenizer, build

WEIGHT = {"boolean_expressions": 1.5, "dyck_languages": 1.0, "web_of_lies": 1.0, "navigate": 1.0,
          "tracking_shuffled_objects_three_objects": 0.8, "object_counting": 1.0, "repeat_words": 1.0}


def options(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True, help="folder of tokenizer.json and the checkpoint")
    ap.add_argument("--family", choices=list(SHAPE), default="llada")
    ap.add_argument("--init", help="checkpoint or GGUF file of the same shape to start from (deep.py: of any depth)")
    ap.add_argument("--steps", type=int, default=4200)
    ap.add_argument("--minutes", type=float, default=1e9, help="training time; whichever ends first shapes the schedule")
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--batch", type=int, default=16, help="examples per worker and step")
    ap.add_argument("--chunks", type=int, default=2, help="groups of like length a batch is cut into")
    ap.add_argument("--lr", type=float, default=0.02, help="of Muon")
    ap.add_argument("--adam-lr", type=float, default=0.005)
    ap.add_argument("--grow", type=float, default=0.1, help="share of the training in which problems grow to full size")
    ap.add_argument("--decay", type=float, default=0.4, help="share of the training in which the rates fall to zero")
    ap.add_argument("--dense", type=float, default=0.7, help="share of the batches with every answer token as a target")
    ap.add_argument("--twin", type=float, default=0, metavar="SHARE",
                    help="for the source of a Dream model: its prompt, and in this share of the batches its decoding; "
                         "deep.py: its prompt in this share of the examples")
    ap.add_argument("--weights", default="", help="task=weight,... changes how often a task is drawn")
    ap.add_argument("--save-every", type=float, default=40, help="seconds")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--layers", type=int, default=20, help="of a deep model (deep.py)")
    ap.add_argument("--lines", type=int, default=8, help="of the puzzles that the source of a deep model has learned")
    ap.add_argument("--hidden", type=int, default=256, help="FFN units of a deep model")
    ap.add_argument("--warm", type=float, default=50, help="steps in which the rates rise")
    return ap.parse_args(argv)


def dream_counts(block):
    """How many tokens each step of Dream's time grid settles: often none, at the end two."""
    time, left, counts = torch.linspace(1, 1e-3, block + 1), block, []
    for step in range(block):
        counts.append(int(left * (1 - time[step + 1] / time[step])) if step + 1 < block else left)
        left -= counts[-1]
    return counts


class Data:
    weight = WEIGHT

    def __init__(self, tok, a, seed):
        self.tok, self.batch, self.chunks = tok, a.batch, a.chunks
        self.share = a.dense if a.family == "llada" else 0.0     # dense batches know no shifted logits
        weight = dict(self.weight)
        for item in filter(None, a.weights.split(",")):
            k, v = item.split("=")
            weight[k] = float(v)
        self.names, self.weights = list(weight), list(weight.values())
        self.twin = a.twin
        self.rng = random.Random(seed)

    def next(self, progress, grow_share, model):
        rng, rows = self.rng, []
        weight = [w * (progress < 0.25 or n in tasks.TASKS) for n, w in zip(self.names, self.weights)]
        for task in rng.choices(range(len(self.names)), weight, k=self.batch):
            size = min(1.0, 0.25 + 0.75 * progress / max(grow_share, 1e-9))
            if size >= 1 and rng.random() < 0.4:
                size = rng.uniform(0.25, 0.99)               # short problems never vanish
            q, ans = tasks.sample(rng, self.names[task], size)
            rows.append((task, grow.twin_prompt(self.tok, q) if self.twin else self.tok.prompt(q), self.tok.response(ans)))
        rows.sort(key=lambda r: len(r[1]) + len(r[2]))
        n = len(rows)
        for c in range(self.chunks):
            part = rows[c * n // self.chunks:(c + 1) * n // self.chunks]
            if rng.random() < self.twin:
                yield from self.decoding(part, model)
            else:
                yield self.dense(part) if rng.random() < self.share else self.make(part, progress)

    @torch.no_grad()
    def decoding(self, rows, model, block=16):
        """States of Dream's decoding of one block, settled in its order but with the right tokens.

        The time grid settles the last two tokens of a block at once: those the model was least sure of, such as a
        state and the answer that follows from it. Only here does it learn to know both."""
        rng, n = self.rng, max(len(p) for _, p, _ in rows) + 64
        n = max(n, max(len(p) + len(r) for _, p, r in rows))
        ids = torch.full((len(rows), n), self.tok.pad)
        hide, inside = torch.zeros(len(rows), n, dtype=torch.bool), torch.zeros(len(rows), n, dtype=torch.bool)
        for i, (_, p, r) in enumerate(rows):
            ids[i, :len(p) + len(r)] = torch.tensor(p + r)
            begin = len(p) + block * rng.randrange((len(r) + block - 1) // block)
            hide[i, begin:] = True
            inside[i, begin:begin + block] = True
        task = torch.tensor([r[0] for r in rows])
        for count in filter(None, dream_counts(block)):
            seen = torch.where(hide, self.tok.mask, ids)
            prob = model(seen, inside).view(len(rows), block, -1).softmax(-1)
            score = (prob * (prob + 1e-10).log()).sum(-1)
            score = score.masked_fill(~hide[inside].view(len(rows), block), float("-inf"))
            pick = torch.zeros(score.shape, dtype=torch.bool).scatter_(1, score.topk(count, -1).indices, True)
            now = inside.clone()
            now[inside] = pick.flatten()
            if count > 1 or rng.random() < 0.2:
                yield seen, ids, hide & inside, torch.where(now, 1.0, 0.1), task, None, None
            hide = hide & ~now

    def dense(self, rows):
        """Every token of the answer is a target at once, each predicted from the question and the answer before it.

        A real decoding step has one such frontier only, so this is an approximation (the question does not see the
        answer, nor the answer what follows), but it has many more targets per computation.
        A second copy of the answer, all masks, at the same positions: mask i sees what is left of answer i.
        """
        m, k = max(len(p) + len(r) for _, p, r in rows), max(len(r) for _, _, r in rows)
        n = m + k
        ids = torch.full((len(rows), n), self.tok.pad)
        ids[:, m:] = self.tok.mask
        at = torch.arange(m)
        pos, see = torch.zeros(len(rows), n, dtype=torch.long), torch.zeros(len(rows), n, n, dtype=torch.bool)
        target, hide = ids.clone(), torch.zeros_like(ids, dtype=torch.bool)
        for i, (_, p, r) in enumerate(rows):
            a, b = len(p), len(p) + len(r)
            ids[i, :b] = torch.tensor(p + r)
            pos[i, :m] = at
            see[i, :m, :m] = (at[None] <= at[:, None]) | (at[None] < a)
            pos[i, m:] = a + torch.arange(k)
            see[i, m:, :m] = at[None] < pos[i, m:, None]
            target[i, m:m + len(r)] = torch.tensor(r)
            hide[i, m:m + len(r)] = True
        see |= torch.eye(n, dtype=torch.bool)
        mask = torch.zeros(see.shape).masked_fill_(~see, -1e9)[:, None]
        return ids, target, hide, torch.ones(ids.shape), torch.tensor([r[0] for r in rows]), mask, pos

    def make(self, rows, progress):
        """Input, target, what is hidden, its weight in the loss, the task of each row, attention mask and positions."""
        rng = self.rng
        n = max(len(p) + len(r) for _, p, r in rows) + rng.choice((0, 2, 6))
        if rng.random() < 0.15:                              # a canvas of 64 tokens, as in decoding
            n = max(n, max(len(p) for _, p, _ in rows) + 64)
        ids = torch.full((len(rows), n), self.tok.pad)
        u = torch.rand(len(rows), n)
        rate, weight = torch.zeros(len(rows), n), torch.zeros(len(rows), n)
        for i, (task, p, r) in enumerate(rows):
            a, b = len(p), len(p) + len(r)
            ids[i, :b] = torch.tensor(p + r)
            # What cannot be known yet (steps that build on hidden steps) would drown the rest, so it weighs little.
            if rng.random() < 0.35:                          # any part hidden
                rate[i, a:] = rng.uniform(0.1, 0.75)
                weight[i, a:b + 1] = 0.6
            else:                                            # as in decoding: done, a block in work, the rest open
                k = rng.randint(a, b - 1)
                e = k + rng.choice((4, 8, 16, 32))
                rate[i, k:] = 1
                rate[i, k + 1:e] = rng.uniform(0.3, 1.0)
                weight[i, a:] = 0.05
                weight[i, k:e] = 0.25
                weight[i, k:k + 6] = 1
            weight[i, b + 1:] = 0.05                         # padding is easy
            dyck = self.names[task] == "dyck_languages"
            # Hidden parts of the question teach copying (names repeat) and the matching of brackets.
            if rng.random() < (0.7 if dyck else 0.15 if progress < 0.3 else 0.05):
                rate[i, 4:a - 5] = rng.uniform(0.05, 0.35)
                weight[i, 4:a - 5] = 1.0 if dyck else 0.3
        hide = u < rate
        return torch.where(hide, self.tok.mask, ids), ids, hide, weight, torch.tensor([r[0] for r in rows]), None, None


def gradients(model, tok, data, progress, a, stat):
    """Adds this worker's gradients to model.grad; stat[task] collects (weighted loss, weight, right)."""
    seen = 0
    for ids, target, hide, weight, task, mask, pos in data.next(progress, a.grow, model):
        logits = model(ids, hide, mask, pos)
        target, w = target[hide], weight[hide]
        ce = F.cross_entropy(logits, target, reduction="none")
        ((ce * w).sum() / (a.batch * 10)).backward()
        seen += ids.numel()
        with torch.no_grad():
            full = w == 1                                    # what the log shows
            t = task[:, None].expand_as(ids)[hide][full]
            stat[:, 0].index_add_(0, t, ce[full].detach())
            stat[:, 1].index_add_(0, t, torch.ones(len(t)))
            stat[:, 2].index_add_(0, t, (logits[full].argmax(-1) == target[full]).float())
    return seen


def orthogonal(g):
    """Newton-Schulz iteration towards the nearest (semi-)orthogonal matrices; g is a stack [k, rows, cols]."""
    flip = g.shape[1] > g.shape[2]
    x = g.transpose(1, 2) if flip else g
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    for _ in range(5):
        s = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * s + 2.0315 * (s @ s)) @ x
    return x.transpose(1, 2) if flip else x


class Optimizer:
    """State in shared memory: every worker updates its own share, the first one saves it all."""

    def __init__(self, model, workers):
        self.params = dict(model.named_parameters())
        self.muon = [n for n, p in self.params.items() if p.dim() == 2 and n.startswith("blocks")]
        self.adam = [n for n in self.params if n not in self.muon]
        self.m = {n: torch.zeros_like(p).share_memory_() for n, p in self.params.items()}
        self.v = {n: torch.zeros_like(self.params[n]).share_memory_() for n in self.adam}
        self.grads = [{n: torch.zeros_like(p).share_memory_() for n, p in self.params.items()} for _ in range(workers)]
        groups = {}
        for n in self.muon:
            groups.setdefault(tuple(self.params[n].shape), []).append(n)
        # two halves of about equal work each: stacks of equal shape, dealt out in turn
        self.share = [{s: names[r::workers] for s, names in groups.items()} for r in range(workers)]
        self.adam_share = [self.adam[r::workers] for r in range(workers)]

    @torch.no_grad()
    def step(self, rank, t, lr, adam_lr, momentum):
        total = lambda n: sum(g[n] for g in self.grads) / len(self.grads)
        for shape, names in self.share[rank].items():
            look = []
            for n in names:
                g = total(n)
                self.m[n].lerp_(g, 1 - momentum)
                look.append(g.lerp(self.m[n], momentum))
            scale = lr * max(1.0, shape[0] / shape[1]) ** 0.5
            for n, o in zip(names, orthogonal(torch.stack(look))):
                self.params[n].mul_(1 - lr * 0.02).sub_(o, alpha=scale)
        for n in self.adam_share[rank]:
            g = total(n)
            self.m[n].lerp_(g, 0.1)
            self.v[n].lerp_(g * g, 0.02)
            update = (self.m[n] / (1 - 0.9 ** t)) / ((self.v[n] / (1 - 0.98 ** t)).sqrt() + 1e-9)
            self.params[n].sub_(update, alpha=adam_lr)


def deep():
    import deep as module                                    # it builds on this module
    return module


def work(rank, a, model, opt, stat, shared, barrier):
    torch.set_num_threads(1)
    tok = Tokenizer(os.path.join(a.out, "tokenizer.json"), a.family)
    data = (deep().Data if a.data == "deep" else Data)(tok, a, a.seed * 1000003 + int(shared[0]) * 101 + rank)
    torch.manual_seed(a.seed * 7 + int(shared[0]) * 13 + rank)
    while True:
        barrier.wait()                                       # weights and shared[] are settled
        step, progress, stop = shared[:3].tolist()
        if stop:
            return
        for p in model.parameters():
            p.grad = None
        shared[4 + rank] += gradients(model, tok, data, progress, a, stat[rank])
        for n, p in model.named_parameters():
            opt.grads[rank][n].copy_(p.grad)
        barrier.wait()
        warm = min(1.0, (step + 1) / a.warm)
        rate = warm * min(1.0, max(0.0, (1 - progress) / a.decay) + 0.002)
        opt.step(rank, step + 1, a.lr * rate, a.adam_lr * rate, min(0.95, 0.85 + step / 3000))
        barrier.wait()
        if rank == 0:
            yield step


def helper(*args):
    for _ in work(*args):
        pass


def main(argv=None, data="mini"):
    a = options(argv)
    a.data = data
    os.makedirs(a.out, exist_ok=True)
    if data == "deep":
        grow.prepare(a.out, a.family, a.init, deep().extend_vocabulary)
    elif a.init:
        grow.prepare(a.out, a.family, a.init)
    tokfile, ckpt = os.path.join(a.out, "tokenizer.json"), os.path.join(a.out, "ckpt.pt")
    if not os.path.exists(tokfile):
        build(tokfile + ".tmp", a.family)
        os.replace(tokfile + ".tmp", tokfile)
    tok = Tokenizer(tokfile, a.family)
    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    model = MiniDLM(deep().shape(a.family, a.layers, a.hidden) if data == "deep" else SHAPE[a.family], tok.size)
    if data == "deep":
        if not os.path.exists(ckpt):
            deep().deepen(model, tok, a.init, a.lines)
    elif a.init:
        model.load_state_dict(grow.source(a.init)[0])
    else:
        plant_copying(model, tok.mask)
    model.share_memory()
    opt = Optimizer(model, a.workers)
    ema = {k: v.clone() for k, v in model.state_dict().items()}
    step, before, tokens = 0, 0.0, 0
    if os.path.exists(ckpt):
        s = torch.load(ckpt)
        model.load_state_dict(s["model"])
        ema, step, before, tokens = s["ema"], s["step"], s["seconds"], s["tokens"]
        for n in opt.m:
            opt.m[n].copy_(s["m"][n])
        for n in opt.v:
            opt.v[n].copy_(s["v"][n])
        print("resumed at", step, flush=True)
    print("parameters", sum(p.numel() for p in model.parameters()), flush=True)
    names = list(deep().WEIGHT if data == "deep" else WEIGHT)
    shared = torch.zeros(4 + a.workers, dtype=torch.float64).share_memory_()    # step, progress, stop, -, tokens...
    stat = torch.zeros(a.workers, len(names), 3).share_memory_()
    shared[0] = step
    ctx = mp.get_context("spawn")
    barrier = ctx.Barrier(a.workers)
    others = [ctx.Process(target=helper, args=(r, a, model, opt, stat, shared, barrier), daemon=True)
              for r in range(1, a.workers)]
    for o in others:
        o.start()
    start = saved = time.time()

    def elapsed():
        return before + time.time() - start

    def progress():
        return min(1.0, max(step / a.steps, elapsed() / 60 / a.minutes))

    def write(path, **more):
        torch.save({"ema": ema, "step": step, "seconds": elapsed(), "tokens": tokens + int(shared[4:].sum()),
                    "shape": model.c, "vocab": tok.size, "special": tok.special, **more}, path + ".tmp")
        os.replace(path + ".tmp", path)

    def save():
        write(ckpt, model=model.state_dict(), m=opt.m, v=opt.v)

    shared[1] = progress()
    for _ in work(0, a, model, opt, stat, shared, barrier):
        step += 1
        # The average follows quickly: the falling rates at the end do most of the averaging.
        k = min(0.99, (1 + step) / (10 + step)) if progress() < 0.95 else 0.95
        with torch.no_grad():
            for n, v in model.state_dict().items():
                ema[n].lerp_(v, 1 - k)
        shared[0], shared[1] = step, progress()
        shared[2] = 1.0 if progress() >= 1 else 0.0
        if step % (50 if data == "mini" else 25) == 0:
            s = stat.sum(0)
            stat.zero_()
            text = "  ".join(f"{n[:8]} {s[i, 0] / max(s[i, 1], 1):.3f} {100 * s[i, 2] / max(s[i, 1], 1):.1f}%"
                             for i, n in enumerate(names))
            print(f"step {step} min {elapsed() / 60:.1f} progress {progress():.3f} tok/s "
                  f"{shared[4:].sum() / (time.time() - start):.0f}  {text}", flush=True)
        for mark in (0.95, 1.0):                             # to choose from, on held-out generated problems
            snap = os.path.join(a.out, f"snap-{mark:.2f}.pt")
            if shared[1] >= mark and not os.path.exists(snap):
                write(snap)
        if time.time() - saved > a.save_every or shared[2]:
            save()
            saved = time.time()
        if shared[2]:
            break
    barrier.wait()
    print("stopped at step", step, flush=True)


if __name__ == "__main__":
    main()
