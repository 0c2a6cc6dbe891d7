"""Problem generators for the deep models: constraints that reach across the whole answer, and more of the BBH format.

Same contract as tasks.py: (rng, size in (0, 1]) -> (question, worked answer ending in "Answer: X"); no file is read.
The puzzles have one right answer each and no worked steps: the work is done in the hidden states, in rows outside
the current block as well, which is what a cache can get wrong.
"""
import random

import tasks

# ------------------------------------------------------------------------------- sudoku


def _units(n, bh, bw):
    rows = [[r * n + c for c in range(n)] for r in range(n)]
    cols = [[r * n + c for r in range(n)] for c in range(n)]
    boxes = [[(r + i) * n + c + j for i in range(bh) for j in range(bw)] for r in range(0, n, bh) for c in range(0, n, bw)]
    return rows + cols + boxes


class Sudoku:
    def __init__(self, bh, bw):
        self.n, self.bh, self.bw = bh * bw, bh, bw
        self.units = _units(self.n, bh, bw)
        self.peers = [sorted({p for u in self.units if c in u for p in u} - {c}) for c in range(self.n ** 2)]

    def full(self, rng):
        """A random full grid by search."""
        n = self.n
        grid = [0] * (n * n)

        def fill():
            best, options = None, None
            for c in range(n * n):
                if not grid[c]:
                    o = [v for v in range(1, n + 1) if all(grid[p] != v for p in self.peers[c])]
                    if options is None or len(o) < len(options):
                        best, options = c, o
            if best is None:
                return True
            rng.shuffle(options)
            for v in options:
                grid[best] = v
                if fill():
                    return True
            grid[best] = 0
            return False

        fill()
        return grid

    def logical(self, given):
        """Whether single candidates and single places fill the grid (then the answer is the only one)."""
        n, every = self.n, (1 << (self.n + 1)) - 2
        cand, left = [every] * (n * n), 0
        todo = [(c, 1 << v) for c, v in enumerate(given) if v]
        done = [False] * (n * n)
        while True:
            while todo:
                c, b = todo.pop()
                if done[c]:
                    continue
                done[c], cand[c] = True, b
                left += 1
                for p in self.peers[c]:
                    if not done[p] and cand[p] & b:
                        cand[p] &= ~b
                        if cand[p] & (cand[p] - 1) == 0:
                            todo.append((p, cand[p]))
            if left == n * n:
                return True
            for u in self.units:
                for v in range(1, n + 1):
                    where = [c for c in u if not done[c] and cand[c] >> v & 1]
                    if len(where) == 1:
                        todo.append((where[0], 1 << v))
            if not todo:
                return False

    def problem(self, rng, most_hidden):
        grid = self.full(rng)
        given, hidden = list(grid), 0
        order = list(range(len(grid)))
        rng.shuffle(order)
        for c in order:
            if hidden == most_hidden:
                break
            v, given[c] = given[c], 0
            if self.logical(given):
                hidden += 1
            else:
                given[c] = v
        show = lambda g: " ".join("".join(map(str, g[r * self.n:(r + 1) * self.n])) for r in range(self.n))
        return show(given), show(grid)


FOUR, SIX = Sudoku(2, 2), Sudoku(2, 3)


def sudoku_four(rng, size=1.0):
    q, a = FOUR.problem(rng, rng.randint(4, max(4, round(12 * size))))
    return "Sudoku four: " + q, "Answer: " + a


def sudoku_six(rng, size=1.0):
    q, a = SIX.problem(rng, rng.randint(6, max(6, round(22 * size))))
    return "Sudoku six: " + q, "Answer: " + a


# ----------------------------------------------------------------------------- addition
def addition(rng, size=1.0):
    """The most significant digit comes first, so it depends on every digit behind it; runs of nines are common.

    All numbers have the same width: a digit then finds its partners at a fixed distance."""
    n, width = rng.randint(2, max(3, round(12 * size))), 13
    a, b = [], []
    for _ in range(n):
        x = rng.randint(0, 9)
        a.append(x)
        b.append(9 - x if rng.random() < 0.25 else rng.randint(0, 9))
    value = lambda d: int("".join(map(str, d)))
    text = lambda v: str(v).zfill(width)
    return f"Add: {text(value(a))} + {text(value(b))} =", "Answer: " + text(value(a) + value(b))


# -------------------------------------------------------------------- graphs of letters
LETTERS = "ABCDEFGHIJKLMNOP"


def topological_order(rng, size=1.0):
    n = rng.randint(3, max(4, round(10 * size)))
    names = list(LETTERS[:n])
    hidden = names[:]
    rng.shuffle(hidden)
    pairs = [(hidden[i], hidden[j]) for i in range(n) for j in range(i + 1, n)]
    edges = rng.sample(pairs, min(len(pairs), rng.randint(n // 2, round(1.3 * n))))
    before = {x: {a for a, b in edges if b == x} for x in names}
    out = []
    while len(out) < n:
        out.append(min(x for x in names if x not in out and before[x] <= set(out)))
    return ("Order the jobs. Of those that are free, the first letter goes first. Jobs: " + " ".join(names) + ". Rules: " +
            ", ".join(f"{a} before {b}" for a, b in edges) + ".", "Answer: " + " ".join(out))


PAINT = ("red", "green", "blue", "yellow")


def map_colouring(rng, size=1.0):
    """Each region takes the first colour that no coloured neighbour has."""
    while True:
        n = rng.randint(3, max(4, round(10 * size)))
        names = list(LETTERS[:n])
        pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
        edges = rng.sample(pairs, min(len(pairs), rng.randint(n - 1, round(1.8 * n))))
        colour = []
        for i in range(n):
            used = {colour[a] for a, b in edges if b == i}
            colour.append(min(k for k in range(n) if k not in used))
        if max(colour) < 4:
            break
    shown = [e if rng.random() < 0.5 else e[::-1] for e in edges]
    return ("Colour the regions in order, each with the first of red, green, blue, yellow that no neighbour has. Regions: " +
            " ".join(names) + ". Borders: " + ", ".join(f"{names[a]} {names[b]}" for a, b in shown) + ".",
            "Answer: " + " ".join(f"{x} {PAINT[c]}" for x, c in zip(names, colour)))


# ---------------------------------------------------- logical_deduction_three_objects
BIRDS = "blue jay,quail,falcon,robin,raven,crow,owl,hawk,cardinal,hummingbird".split(",")
BOOKS = [c + " book" for c in "red gray white green blue orange purple yellow brown black".split()]
GOLFERS = "Amy,Eli,Eve,Ana,Dan,Ada,Joe,Rob,Mel,Mya".split(",")
CARS = "motorcyle,limousine,convertible,tractor,truck,minivan,bus,sedan,hatchback,station wagon".split(",")
FRUITS = "apples,peaches,kiwis,plums,mangoes,watermelons,oranges,pears,cantaloupes,loquats".split(",")
HEAD = ("The following paragraphs each describe a set of three objects arranged in a fixed order. The statements are "
        "logically consistent within each paragraph. ")


def _a(x):
    return ("an " if x[0] in "aeiou" else "a ") + x


def logical_deduction_three_objects(rng, size=1.0):
    """Objects are named by the letters of their options. First the statements, as letters, then the order."""
    kind = rng.randrange(5)
    things = rng.sample((BIRDS, BOOKS, GOLFERS, CARS, FRUITS)[kind], 3)
    the = things if kind == 2 else ["the " + t for t in things]
    listed = ", ".join((("and " if i == 2 else "") + (t if kind in (2, 4) else _a(t))) for i, t in enumerate(things))
    place = ["is the leftmost", "is the second from the left", "is the rightmost"]
    less, more = "is to the left of", "is to the right of"
    if kind == 0:
        intro = f"On a branch, there are three birds: {listed}."
    elif kind == 1:
        intro = f"On a shelf, there are three books: {listed}."
    elif kind == 2:
        intro = f"In a golf tournament, there were three golfers: {listed}."
        place, less, more = ["finished first", "finished second", "finished last"], "finished above", "finished below"
    elif kind == 3:
        intro = f"In an antique car show, there are three vehicles: {listed}."
        place, less, more = ["is the oldest", "is the second-newest", "is the newest"], "is older than", "is newer than"
    else:
        intro = f"A fruit stand sells three fruits: {listed}."
        place = ["are the cheapest", "are the second-most expensive", "are the most expensive"]
        less, more = "are less expensive than", "are more expensive than"
    big = lambda s: s[0].upper() + s[1:]
    order = rng.sample(range(3), 3)                          # order[k] is the object at place k
    while True:
        facts = rng.sample([(x, y) for x in range(3) for y in range(3) if x < y] + [(x,) for x in range(3)], 2)
        fits = [p for p in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
                if all((p.index(order[f[0]]) < p.index(order[f[1]])) if len(f) == 2 else p[f[0]] == order[f[0]] for f in facts)]
        if len(fits) == 1:
            break
    said, steps = [], []
    for f in facts:
        if len(f) == 2:
            x, y = order[f[0]], order[f[1]]
            turned = rng.random() < 0.5
            said.append(f"{big(the[y])} {more} {the[x]}." if turned else f"{big(the[x])} {less} {the[y]}.")
            steps.append(f"{'ABC'[x]} before {'ABC'[y]}.")
        else:
            said.append(f"{big(the[order[f[0]]])} {place[f[0]]}.")
            steps.append(f"{'ABC'[order[f[0]]]} {tasks.word(f[0] + 1)}.")
    ask = rng.randrange(3)
    question = (HEAD + intro + " " + " ".join(said) + "\nOptions:" +
                "".join(f"\n({c}) {big(the[i])} {place[ask]}" for i, c in enumerate("ABC")))
    answer = "ABC"[order[ask]]
    return question, ("Steps: " + " ".join(steps) + " Order: " + " ".join("ABC"[i] for i in order) +
                      f". {tasks.word(ask + 1)} {answer}. Answer: ({answer})")


FREE = {f.__name__: f for f in (sudoku_four, sudoku_six, addition, topological_order, map_colouring)}   # any order
WORKED = {f.__name__: f for f in (logical_deduction_three_objects,)}
DEEP = {**tasks.TASKS, **WORKED, **FREE}


def sample(rng, task, size=1.0):
    return (DEEP.get(task) or tasks.EXTRA[task])(rng, size)
