"""Puzzles for the deep models: grids of eight lines of sixteen cells, whose constraints reach across the whole answer.

Same contract as tasks.py: (rng, size in (0, 1]) -> (question, answer ending in "Answer: X"); no file is read.
Each has one right answer and no worked steps: the work is done in the hidden states, of rows outside the current block
as well, which is what a cache can get wrong. A cell is one token, so it stands at the same distance from its clue, and
a cell of the line above at the same distance from it, in every puzzle.
"""
import tasks

WIDTH, LINES = 16, 8
CELLS = WIDTH * LINES
LETTER = "ABCD"
AHEAD = 2                                                    # tokens of "Answer:" before the first cell
WAYS = {"left": -1, "right": 1, "up": -WIDTH, "down": WIDTH}


def relay(rng, size=1.0):
    """Some cells show their letter; every other names the neighbour whose letter it has, or, in capitals, whose next letter.

    Chains are long and wind through all lines. But between two cells of one line a chain has at most three
    cells in later lines, so that a model which follows four links at once can also answer line by line. It has to follow
    the links again once a cell is settled, in the rows of later lines as well."""
    roots = round(CELLS / 16 * (1 + 5 * (1 - size))) + rng.randint(0, CELLS // 10)
    line = lambda c: (c + AHEAD) // WIDTH                    # the block of 16 tokens the cell stands in
    start = rng.sample(range(CELLS), roots)
    parent, front = {c: None for c in start}, list(start)
    while len(parent) < CELLS:
        if not front:                                        # cells no chain may reach show their letter as well
            c = rng.choice([c for c in range(CELLS) if c not in parent])
            parent[c] = None
            front.append(c)
        at = len(front) - 1 if rng.random() < 0.8 else rng.randrange(len(front))
        c, ways = front[at], sorted(WAYS, key=lambda w: rng.random() + 0.6 * (abs(WAYS[w]) == 1))    # up and down more often
        for w in ways:                                       # w is how the new cell names this one
            n = c - WAYS[w]
            if n in parent or not 0 <= n < CELLS or (abs(WAYS[w]) == 1 and n // WIDTH != c // WIDTH):
                continue
            away, up = 0, c
            while up is not None and line(up) > line(n):
                away, up = away + (parent[up] is not None), parent[up] and parent[up][0]
            if away <= 3:
                parent[n] = (c, w, rng.random() < size / 2)
                front.append(n)
                break
        else:
            front.pop(at)
    value = {}
    for c in parent:                                         # in the order of growth: what a cell depends on comes first
        value[c] = (value[parent[c][0]] + parent[c][2]) % 4 if parent[c] else rng.randrange(4)
    clue = [(parent[c][1].capitalize() if parent[c][2] else parent[c][1]) if parent[c] else LETTER[value[c]] for c in range(CELLS)]
    return "Relay: " + " ".join(clue), "Answer: " + " ".join(LETTER[value[c]] for c in range(CELLS))


# ------------------------------------------------------------------------------- sudoku
UNITS = ([[r * 4 + c for c in range(4)] for r in range(4)] + [[r * 4 + c for r in range(4)] for c in range(4)] +
         [[r * 4 + c for r in (a, a + 1) for c in (b, b + 1)] for a in (0, 2) for b in (0, 2)])
PEERS = [sorted({p for u in UNITS if c in u for p in u} - {c}) for c in range(16)]


def _full(rng, grid=None, c=0):
    """A random full board by search."""
    grid = grid or [0] * 16
    if c == 16:
        return grid
    options = [v for v in (1, 2, 3, 4) if all(grid[p] != v for p in PEERS[c])]
    rng.shuffle(options)
    for v in options:
        grid[c] = v
        if _full(rng, grid, c + 1):
            return grid
    grid[c] = 0
    return None


def _logical(given):
    """Whether single candidates and single places fill the board (then the answer is the only one)."""
    grid = list(given)
    while 0 in grid:
        options = [[v for v in (1, 2, 3, 4) if all(grid[p] != v for p in PEERS[c])] if not grid[c] else [] for c in range(16)]
        found = [(c, o[0]) for c, o in enumerate(options) if len(o) == 1]
        found += [(w[0], v) for u in UNITS for v in (1, 2, 3, 4) for w in [[c for c in u if v in options[c]]] if len(w) == 1]
        if not found:
            return False
        grid[found[0][0]] = found[0][1]
    return True


def sudoku(rng, size=1.0):
    """Boards of 4x4, four side by side, two rows of them."""
    boards = []
    for _ in range(LINES):
        grid = _full(rng)
        given, hidden = list(grid), rng.randint(2, max(3, round(6 * size)))
        for c in rng.sample(range(16), 16):
            v, given[c] = given[c], 0
            if _logical(given):
                hidden -= 1
            else:
                given[c] = v
            if not hidden:
                break
        boards.append((given, grid))
    show = lambda k: " ".join(LETTER[b[k][r * 4 + c] - 1] if b[k][r * 4 + c] else "x"
                              for row in range(0, LINES, 4) for r in range(4) for b in boards[row:row + 4] for c in range(4))
    return "Sudoku: " + show(0), "Answer: " + show(1)


PUZZLES = {f.__name__: f for f in (relay, sudoku)}
DEEP = {**tasks.TASKS, **PUZZLES}


def sample(rng, task, size=1.0):
    return (PUZZLES.get(task) or tasks.TASKS[task])(rng, size)


if __name__ == "__main__":
    tasks.print_problems(PUZZLES, sample)
