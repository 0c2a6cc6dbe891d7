"""Problem generators for the mini diffusion language models.

Each generator takes a random source and a size in (0, 1] (small problems first, as in a curriculum)
and returns (question, worked_answer). Questions follow the public format of six BIG-Bench-Hard tasks.
The published test files are never read here, so they stay a clean test set.

The worked answers are made to be learnable by a tiny model: every new token depends on a few tokens
that are near or easy to find, the state is written out after every step, numbers are words (one token
each, where digits would be two), and every answer ends with "Answer: X".
"""
import argparse
import json
import math
import random

NUMBER = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
          "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
for _tens in ("twenty", "thirty", "forty", "fifty", "sixty", "seventy"):
    NUMBER += [_tens] + [_tens + u for u in NUMBER[1:10]]


def word(n):
    """One word, hence one token, for any integer that occurs."""
    return NUMBER[n] if n >= 0 else "minus" + NUMBER[-n]


# ---------------------------------------------------------------- boolean_expressions
LIT = ("True", "False")


def _bool_tokens(rng, n):
    if n == 1:
        return [rng.choice(LIT)]
    kinds = ["not"] + (["("] if n >= 3 else []) + (["op", "op"] if n >= 3 else [])
    k = rng.choice(kinds)
    if k == "not":
        return ["not"] + _bool_tokens(rng, n - 1)
    if k == "(":
        return ["("] + _bool_tokens(rng, n - 2) + [")"]
    i = rng.randint(1, n - 2)
    return _bool_tokens(rng, i) + [rng.choice(("and", "or"))] + _bool_tokens(rng, n - 1 - i)


def _runs(t, op):
    """Maximal runs lit (op lit)+ as (start, end) with end exclusive."""
    i = 0
    while i < len(t):
        j = i + 1
        if t[i] in LIT:
            while j + 1 < len(t) and t[j] == op and t[j + 1] in LIT:
                j += 2
            yield i, j
        i = j


def _reduce_bool(t):
    """One line of the worked answer: the first kind of step that applies, everywhere it applies."""
    out, i = [], 0
    while i < len(t):                                        # not ... not literal
        j = i
        while j < len(t) and t[j] == "not":
            j += 1
        if j > i and j < len(t) and t[j] in LIT:
            out.append(str((t[j] == "True") ^ ((j - i) % 2 == 1)))
            i = j + 1
        else:
            out += t[i:j] or [t[i]]
            i = max(j, i + 1)
    if out != t:
        return out
    out, i = [], 0
    while i < len(t):                                        # ( literal )
        if t[i] == "(" and i + 2 < len(t) and t[i + 1] in LIT and t[i + 2] == ")":
            out.append(t[i + 1])
            i += 3
        else:
            out.append(t[i])
            i += 1
    if out != t:
        return out
    for op, fold in (("and", all), ("or", any)):
        out, last = [], 0
        for a, b in _runs(t, op):
            if op == "or":                                   # "and" binds tighter
                if a > 0 and t[a - 1] == "and":
                    a += 2
                if b < len(t) and t[b] == "and":
                    b -= 2
            if b - a >= 3:
                out += t[last:a] + [str(fold(x == "True" for x in t[a:b:2]))]
                last = b
        out += t[last:]
        if out != t:
            return out
    raise AssertionError(t)


def boolean_expressions(rng, size=1.0):
    n = 8 if size >= 1 and rng.random() < 0.75 else rng.randint(2, max(3, round(9 * size)))
    t = _bool_tokens(rng, n)
    value, lines, cur = str(eval(" ".join(t))), [], t
    while len(cur) > 1:
        cur = _reduce_bool(cur)
        lines.append("=> " + " ".join(cur))
    assert cur == [value], (t, cur)
    return " ".join(t) + " is", " ".join(lines) + ". Answer: " + value


# ---------------------------------------------------------------------- dyck_languages
PAIR = {"(": ")", "[": "]", "{": "}", "<": ">"}


def dyck_languages(rng, size=1.0):
    """No steps: the answer goes on with the sequence, so every bracket of the question trains the same rule."""
    target = round(math.exp(rng.uniform(math.log(2), math.log(4 + 88 * size * size))))
    left = rng.choice((1, 1, 2, 2, 3, 3, 4))
    p_open = rng.uniform(0.4, 0.6)
    seq, stack = [], []
    while len(seq) < target or not 1 <= len(stack) <= left:
        full = len(stack) >= 9 or (len(seq) >= target and len(stack) > left)
        if not stack or (not full and rng.random() < p_open):
            stack.append(rng.choice("([{<"))
            seq.append(stack[-1])
        else:
            seq.append(PAIR[stack.pop()])
    question = ("Complete the rest of the sequence, making sure that the parentheses are "
                "closed properly. Input: " + " ".join(seq))
    return question, "Answer: " + " ".join(PAIR[c] for c in reversed(stack))


# ------------------------------------------------------------------------- web_of_lies
SYLLABLES = """Al an be Bo ca Da de El en Fi Ga ia ie Ja Ka ka la Le li Lo ma Mi na ne No Os ra ri Ro Sa sha Sh ta ti Va vi
Wi ya ze l n r s Ch ris Mar tin Jo Ben ton den Ray mond Gwe Au drie Te ssa der lle Que bert da vid Ham ley Ti mo thy Kr
Pho ebe she Am ber ly Ver nell Fle tch er Con cep tion""".split()
NAMES = """James Mary Robert Patricia John Jennifer Michael Linda David Elizabeth William Barbara Richard Susan Joseph
Jessica Thomas Sarah Charles Karen Daniel Lisa Matthew Nancy Anthony Betty Mark Sandra Donald Ashley Steven Emily Paul
Andrew Joshua Kenneth Kevin Brian George Timothy Ronald Edward Jason Jeffrey Ryan Jacob Gary Nicholas Eric Jonathan Donna
Michelle Carol Amanda Melissa Deborah Stephanie Rebecca Sharon Laura Cynthia Kathleen Amy Angela Shirley Anna Brenda Pamela
Emma Nicole Helen Samantha Katherine Christine Helene Inga Jerry Alexis Raymond Alejandro Phoebe Christie Fletcher Sal Ka
Leda Sherrie Vernell Michaela Elanor Kristian Delbert Shalonda Lorine Kandi Sima Crista Yoland Rashida Amberly Jamey Antwan
Gwenn Teressa Audrie Willian Conception Maria Tomas Olga Ivan Yuki Omar Fatima Chen Priya Lars Ingrid Pedro Lucia Hugo
Nadia Boris Elena Marcus Silvia Dolores Wanda Vernon Leroy Clyde Edna Mabel Hazel Ruby Opal Pearl Ida Ora Della Effie""".split()


def _name(rng):
    if rng.random() < 0.4:
        return rng.choice(NAMES)
    while True:
        n = "".join(rng.choice(SYLLABLES) for _ in range(rng.choice((1, 2, 2, 3)))).capitalize()
        if 2 <= len(n) <= 10:
            return n


def web_of_lies(rng, size=1.0):
    n = 5 if size >= 1 and rng.random() < 0.85 else rng.randint(2, max(2, round(6 * size)))
    names = []
    while len(names) < n:
        c = _name(rng)
        if c not in names:
            names.append(c)
    says = {True: "tells the truth", False: "lies"}
    short = {True: "truth", False: "lies"}
    truth = rng.random() < 0.5
    q, steps = [f"{names[0]} {says[truth]}."], [f"{names[0]} {short[truth]}."]
    for prev, cur in zip(names, names[1:]):
        claim = rng.random() < 0.5
        truth = claim == truth
        q.append(f"{cur} says {prev} {says[claim]}.")
        steps.append(f"{cur} says {short[claim]}: {short[truth]}.")
    return ("Question: " + " ".join(q) + f" Does {names[-1]} tell the truth?",
            "Steps: " + " ".join(steps) + " Answer: " + ("Yes" if truth else "No"))


# ---------------------------------------------------------------------------- navigate
WAY = {"forward": (0, 1), "right": (1, 0), "backward": (0, -1), "left": (-1, 0)}
HEADING = list(WAY)
BACK = {"forward": "backward", "backward": "forward", "left": "right", "right": "left"}
TURN = {"right": 1, "around": 2, "left": 3}


def _split(rng, n):
    """n steps as one to three numbers from 1 to 10."""
    out = []
    while n:
        k = min(10, n if rng.random() < 0.6 else rng.randint(1, n))
        out.append(k)
        n -= k
    return out


def navigate(rng, size=1.0):
    most = max(2, round(9 * size))
    while True:
        n = rng.randint(1, most)
        home = rng.random() < 0.5
        facing = rng.random() < 0.5
        acts = []                                            # ("go", steps, way or None) or ("turn", way)
        if facing:
            acts = [("go", rng.randint(1, 10), rng.choice(HEADING)) for _ in range(n)]
            if home:
                acts = acts[:max(1, n // 2)]
                x = sum(s * WAY[w][0] for _, s, w in acts)
                y = sum(s * WAY[w][1] for _, s, w in acts)
                for v, w in ((x, "right"), (y, "forward")):
                    acts += [("go", k, BACK[w] if v > 0 else w) for k in _split(rng, abs(v))]
                rng.shuffle(acts)
        else:
            for _ in range(n):
                turn = rng.random() < 0.4
                acts.append(("turn", rng.choice(list(TURN))) if turn else ("go", rng.randint(1, 10), None))
            if home:
                there = [a for a in acts if a[0] == "go"][:max(1, n // 2)] or [("go", rng.randint(1, 10), None)]
                total = sum(a[1] for a in there)
                turns = rng.choice(([("turn", "around")], [("turn", "left")] * 2, [("turn", "right")] * 2))
                spare = [[("turn", rng.choice(list(TURN)))] if rng.random() < 0.3 else [] for _ in range(2)]
                acts = spare[0] + there + turns + [("go", k, None) for k in _split(rng, total)] + spare[1]
        if 1 <= len(acts) <= most:
            break
    x = y = h = 0
    lines, steps = ["Always face forward."] if facing else [], []
    for a in acts:
        if a[0] == "turn":
            h = (h + TURN[a[1]]) % 4
            lines.append(f"Turn {a[1]}.")
            steps.append(f"turn {a[1]} {HEADING[h]}.")
        else:
            w = a[2] or HEADING[h]
            x, y = x + a[1] * WAY[w][0], y + a[1] * WAY[w][1]
            lines.append(f"Take {a[1]} step{'s' if a[1] > 1 else ''}{' ' + w if facing else ''}.")
            steps.append(f"{word(a[1])} {w} {word(x)} {word(y)}.")
    return ("If you follow these instructions, do you return to the starting point? " + " ".join(lines) +
            "\nOptions:\n- Yes\n- No",
            "Steps: " + " ".join(steps) + " Answer: " + ("Yes" if x == 0 and y == 0 else "No"))


# --------------------------------------------- tracking_shuffled_objects_three_objects
BOOKS = ["Ulysses", "Frankenstein", "Lolita", "Hound of the Baskervilles", "The Odyssey", "Catch-22", "Moby Dick",
         "The Great Gatsby", "The Pearl", "The Fellowship of the Ring", "Emma", "Dracula", "Great Expectations", "Dune"]
PARTNERS = ["Helga", "Lola", "Ophelia", "Rodrigo", "Jamie", "Karl", "Melissa", "Patrick", "Sam", "Izzi", "Anna", "Tom"]
COLOURS = ["white", "pink", "black", "purple", "blue", "green", "orange", "yellow", "red", "brown"]
POSITIONS = ["striker", "goalkeeper", "cheerleader", "benchwarmer", "fullback", "left winger", "right winger",
             "center midfielder", "left midfielder", "right midfielder"]


def tracking_shuffled_objects_three_objects(rng, size=1.0):
    """The options name the objects in the order of their first owners, as in the published task."""
    who = ("Alice", "Bob", "Claire")
    kind = rng.randrange(5)
    if kind == 0:
        things = rng.sample(BOOKS, 3)
        head = (" are friends and avid readers who occasionally trade books. At the start of the semester, they each "
                "buy one new book: ")
        each, middle = "{} gets {}", "As the semester proceeds, they start trading around the new books."
        swap, end = "swap books", "At the end of the semester, {} has"
    elif kind == 1:
        things = rng.sample(PARTNERS, 3)
        head = " are dancers at a square dance. At the start of a song, they each have a partner: "
        each, middle = "{} is dancing with {}", "Throughout the song, the dancers often trade partners."
        swap, end = "switch partners", "At the end of the dance, {} is dancing with"
    elif kind == 2:
        things = [c + " ball" for c in rng.sample(COLOURS, 3)]
        head = " are playing a game. At the start of the game, they are each holding a ball: "
        each, middle = "{} has a {}", "As the game progresses, pairs of players trade balls."
        swap, end = "swap balls", "At the end of the game, {} has the"
    elif kind == 3:
        things = [c + rng.choice((" ball", " present")) for c in rng.sample(COLOURS, 3)]
        head = (" are holding a white elephant gift exchange. At the start of the event, they are each holding a "
                "present of a different color: ")
        each, middle = "{} has a {}", "As the event progresses, pairs of people swap gifts."
        swap, end = "swap their gifts", "At the end of the event, {} has the"
    else:
        things = rng.sample(POSITIONS, 3)
        head = (" are on the same team in a soccer match. At the start of the match, they are each assigned to a "
                "position: ")
        each, middle = "{} is playing {}", "As the game progresses, pairs of players occasionally swap positions."
        swap, end = "trade positions", "At the end of the match, {} is playing"
    n = 3 if size >= 1 and rng.random() < 0.9 else rng.randint(1, max(1, round(3 * size)))
    state, text, steps = [0, 1, 2], [], ["A B C."]
    for i in range(n):
        a, b = rng.sample(range(3), 2)
        state[a], state[b] = state[b], state[a]
        order = "First" if i == 0 else "Finally" if i == n - 1 else "Then"
        text.append(f"{order}, {who[a]} and {who[b]} {swap}.")
        steps.append(f"{who[a]} {who[b]}: " + " ".join("ABC"[s] for s in state) + ".")
    ask = rng.randrange(3)
    answer = "ABC"[state[ask]]
    question = ("Alice, Bob, and Claire" + head + ", ".join(("and " if i == 2 else "") + each.format(who[i], things[i])
                for i in range(3)) + ".\n" + middle + " " + " ".join(text) + " " + end.format(who[ask]) + "\nOptions:" +
                "".join(f"\n({c}) {t}" for c, t in zip("ABC", things)))
    return question, "Steps: " + " ".join(steps) + f" {who[ask]} {answer}. Answer: ({answer})"


# --------------------------------------------------------------------- object_counting
def _plain(names):
    return [(n, n + "s") for n in names.split()]


GROUPS = {
    "fruits": _plain("apple orange banana plum nectarine grape") +
              [(b, b[:-1] + "ies") for b in ("strawberry", "blackberry", "raspberry")] + [("peach", "peaches")],
    "vegetables": _plain("carrot onion yam cauliflower cabbage garlic") +
                  [("potato", "potatoes"), ("lettuce head", "lettuce heads"), ("head of broccoli", "heads of broccoli"),
                   ("stalk of celery", "stalks of celery")],
    "musical instruments": _plain("flute piano trombone violin accordion clarinet drum trumpet"),
    "animals": _plain("cat dog bear rabbit chicken cow duck pig frog goat donkey snake snail") +
               [("fish", "fish"), ("mouse", "mice")],
    "objects": _plain("fridge chair bed oven microwave car stove lamp toaster table") + [("couch", "couches")],
}


def object_counting(rng, size=1.0):
    asked = rng.choice(list(GROUPS))
    n = rng.randint(2, max(2, round(10 * size)))
    items = [(t, True) for t in rng.sample(GROUPS[asked], min(n, len(GROUPS[asked])))]
    if asked != "objects" and rng.random() < 0.6:            # everything is an object
        other = rng.choice([g for g in GROUPS if g != asked])
        k = rng.randint(1, min(4, len(items)))
        items = items[:max(1, min(len(items), 11 - k))] + [(t, False) for t in rng.sample(GROUPS[other], k)]
    elif asked == "objects" and rng.random() < 0.3:
        items = items[:8] + [(t, True) for t in rng.sample(GROUPS[rng.choice(list(GROUPS)[:4])], 2)]
    rng.shuffle(items)
    names, steps, total = [], [], 0
    many = rng.uniform(0.05, 0.4)
    for (one, more), counts in items:
        k = rng.randint(2, 5) if rng.random() < many else 1
        name = f"{word(k)} {more}" if k > 1 else ("an " if one[0] in "aeiou" else "a ") + one
        total += k * counts
        names.append(name)
        steps.append(f"{name} {'+' if counts else '='} {word(total)}")
    return ("I have " + ", ".join(names[:-1]) + ", and " + names[-1] + f". How many {asked} do I have?",
            "Steps: " + " ".join(steps) + f". Answer: {total}")


# -------------------------------------------------------------------------- a warm-up
def repeat_words(rng, size=1.0):
    """Not a test task: copying a list while something is written between its items, on short texts.

    Every real task needs this skill and learns it slowly on its own."""
    n = rng.randint(2, 8)
    pool = [rng.choice(sum(GROUPS.values(), []))[0] if rng.random() < 0.5 else _name(rng) for _ in range(n)]
    words = list(dict.fromkeys(pool))
    return ("Repeat: " + " ".join(words),
            "Steps: " + " ".join(f"{w} {word(i + 1)}" for i, w in enumerate(words)) + f". Answer: {len(words)}")


TASKS = {f.__name__: f for f in (boolean_expressions, dyck_languages, web_of_lies, navigate,
                                 tracking_shuffled_objects_three_objects, object_counting)}
EXTRA = {"repeat_words": repeat_words}


def sample(rng, task, size=1.0):
    return (TASKS.get(task) or EXTRA[task])(rng, size)


def print_problems(names, draw):
    """The command line of this file and of puzzles.py."""
    ap = argparse.ArgumentParser(description="Prints problems of every task as JSON lines, for `spa eval --task jsonl`.")
    ap.add_argument("--count", type=int, default=3, help="problems per task")
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    r = random.Random(a.seed)
    for name in names:
        for _ in range(a.count):
            q, worked = draw(r, name)
            print(json.dumps({"task": name, "question": q, "answer": worked.split("Answer: ")[-1].strip()}))


if __name__ == "__main__":
    print_problems(TASKS, sample)
