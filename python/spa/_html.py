"""Pictures for notebooks, in plain HTML and SVG, and tables for terminals."""

from __future__ import annotations

from html import escape

import numpy as np

_TOKEN = "display:inline-block;padding:1px 3px;margin:1px;border-radius:3px;white-space:pre;"


def _colour(share: float) -> str:
    """From light (0) to dark blue (1)."""
    return f"hsl(215,70%,{94 - 54 * share:.0f}%)"


def canvas(pieces: list[str], shares: np.ndarray) -> str:
    """Tokens in boxes: the later settled, the darker; open ones (NaN) grey."""
    boxes = []
    for piece, share in zip(pieces, shares):
        if np.isnan(share):
            style, shown = "background:#eee;color:#999", "·"
        else:
            style = f"background:{_colour(share)};color:{'#fff' if share > 0.6 else '#000'}"
            shown = escape(piece.replace("\n", "↵")) or "·"
        boxes.append(f'<span style="{_TOKEN}{style}">{shown}</span>')
    return f'<div style="font-family:monospace;line-height:1.8">{"".join(boxes)}</div>'


def heat_map(rows: np.ndarray) -> str:
    """Rows recomputed, one column per step, one line per layer."""
    steps, layers = rows.shape
    if steps == 0:
        return ""
    most = max(int(rows.max()), 1)
    width, height = max(2, min(12, 720 // steps)), max(3, min(12, 240 // layers))
    cells = "".join(
        f'<rect x="{s * width}" y="{l * height}" width="{width}" height="{height}" '
        f'fill="{_colour(rows[s, l] / most)}"/>'
        for s in range(steps)
        for l in range(layers)
    )
    return (
        f'<svg width="{steps * width}" height="{layers * height}" role="img">'
        f"<title>rows recomputed per layer (down) and step (across), at most {most}</title>{cells}</svg>"
    )


def caption(text: str) -> str:
    return f'<div style="color:#666;font-size:90%">{escape(text)}</div>'


def table(cells: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in cells[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in cells[1:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


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
