"""Runs a command in a terminal of its own and prints what the screen showed, as JSON.

A list of {"ms": how long the screen stayed so, "lines": [[[text, style], ...], ...]}.
Usage: record_terminal.py COLUMNS ROWS COMMAND...       (needs Debian's python3-pyte)
"""
import fcntl
import json
import os
import pty
import select
import struct
import sys
import termios
import time

import pyte


def style(char):
    words = [name for name in ("bold", "reverse") if getattr(char, name)]
    return " ".join(words + ([char.fg] if char.fg != "default" else []))


def snapshot(screen):
    lines = []
    for y in range(screen.lines):
        runs = []
        for x in range(screen.columns):
            char = screen.buffer[y][x]
            if runs and runs[-1][1] == style(char):
                runs[-1][0] += char.data
            else:
                runs.append([char.data, style(char)])
        if runs and not runs[-1][1]:
            runs[-1][0] = runs[-1][0].rstrip()
        lines.append(runs)
    return lines


def main():
    columns, rows = int(sys.argv[1]), int(sys.argv[2])
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execvp(sys.argv[3], sys.argv[3:])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    frames, shown, since = [], None, time.monotonic()
    while True:
        ready, _, _ = select.select([terminal], [], [], 0.02)
        if ready:
            try:
                data = os.read(terminal, 65536)
            except OSError:
                break
            if not data:
                break
            stream.feed(data)
            continue
        now, picture = time.monotonic(), snapshot(screen)
        if picture == shown:
            continue
        if shown is not None:
            frames.append({"ms": round((now - since) * 1000), "lines": shown})
        shown, since = picture, now
    frames.append({"ms": 4000, "lines": snapshot(screen)})
    json.dump(frames, sys.stdout)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


main()
