"""Pictures for notebooks, in plain HTML and SVG, and tables for terminals."""

from __future__ import annotations

from html import escape

import numpy as np

_TOKEN = "display:inline-block;padding:1px 5px;margin:1px;border-radius:3px;white-space:pre;"
_FAINT = "opacity:0.7;font-size:90%"  # of whatever colour the notebook writes in, light or dark
_WIDEST = 720  # pixels of a heat map's cells


def _colour(share: float) -> str:
    """From light (0) to dark blue (1)."""
    return f"hsl(215,70%,{94 - 54 * share:.0f}%)"


def canvas(pieces: list[str], shares: np.ndarray, notes: list[str]) -> str:
    """Tokens in boxes with a note to hover over: the greater the share, the darker; open ones (NaN) grey."""
    boxes = []
    for piece, share, note in zip(pieces, shares, notes):
        if np.isnan(share):
            style, shown = "background:rgba(128,128,128,0.15);color:#888", "·"
        else:
            style = f"background:{_colour(share)};color:{'#fff' if share > 0.55 else '#000'}"
            shown = piece.replace("\n", "↵").removeprefix(" ") or "␣"
        boxes.append(f'<span style="{_TOKEN}{style}" title="{escape(note)}">{escape(shown)}</span>')
    return f'<div style="font-family:monospace;line-height:1.7">{"".join(boxes)}</div>'


def heat_map(rows: np.ndarray) -> str:
    """Rows recomputed, one column per step, one line per layer."""
    steps, layers = rows.shape
    if steps == 0:
        return ""
    most = max(int(rows.max()), 1)
    width, height = min(12.0, _WIDEST / steps), max(4, min(12, 240 // layers))
    left, across, down = 44, steps * width, layers * height

    def text(x: float, y: float, anchor: str, what: object) -> str:
        return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{what}</text>'

    def cell(x: float, y: float, w: float, h: float, share: float) -> str:
        return f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{_colour(share)}"/>'

    parts = []
    for layer in range(layers):
        begin = 0
        for step in range(1, steps + 1):  # equal neighbours are one rectangle
            if step == steps or rows[step, layer] != rows[begin, layer]:
                share = rows[begin, layer] / most
                parts.append(
                    cell(left + begin * width, layer * height, (step - begin) * width, height, share)
                )
                begin = step
    parts += [text(left - 4, 9, "end", "layer 1"), text(left, down + 13, "start", "step 1")]
    if layers > 1:
        parts.append(text(left - 4, down, "end", layers))
    if across > 60:
        parts.append(text(left + across, down + 13, "end", steps))
    key = left + across + 16  # the scale, beside the map
    parts += [cell(key, 12 * i, 12, 12, 1 - i / 4) for i in range(5)]
    parts += [text(key + 18, 10, "start", f"{most} rows"), text(key + 18, 58, "start", 0)]
    return (
        f'<svg width="{key + 90:g}" height="{max(down, 60) + 18}" role="img" fill="currentColor" '
        'style="display:block;margin:6px 0;font:11px sans-serif">'
        f"<title>rows recomputed in each layer (down) at each step (across)</title>{''.join(parts)}</svg>"
    )


def caption(text: str) -> str:
    return f'<div style="{_FAINT}">{escape(text)}</div>'


def table(cells: list[list[str]]) -> str:
    """The first column names the lines, the others are numbers."""

    def line(kind: str, row: list[str]) -> str:
        sides = ["left"] + ["right"] * (len(row) - 1)
        return "".join(
            f'<{kind} style="text-align:{side};padding:2px 10px">{escape(cell)}</{kind}>'
            for cell, side in zip(row, sides)
        )

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in cells[1:])
    return f"<table><thead><tr>{line('th', cells[0])}</tr></thead><tbody>{body}</tbody></table>"


def text_table(cells: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        )
        for row in cells
    ]
    return "\n".join(lines)
