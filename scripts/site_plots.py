"""A hook of mkdocs: draws each table of caches on the site, accuracy against rows per token.

The tables stay the only place that holds the numbers. Needs matplotlib (make deps DEPS=site).
"""
import base64
import io
import itertools
import re

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

matplotlib.rcParams["svg.hashsalt"] = "spa"  # the same table gives the same picture
TABLE = re.compile(r"^\| cache \| right \| rows \| rows per token \|.*\n\|[-| ]+\n((?:\|.*\n)+)", re.M)
LEAST = 4  # fewer points say no more than the table


def draw(rows):
    """[(cache, right in %, standard error, rows per token)] as an <img>."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for (cache, right, error, work), marker in zip(rows, itertools.cycle("osD^vP*X<>")):
        axes.errorbar(work, right, yerr=error, fmt=marker, capsize=3, label=cache)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("rows per token (less work to the left)")
    axes.set_ylabel("right, % (bars: one standard error)")
    axes.set_ylim(top=min(100.5, axes.get_ylim()[1]))
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize="small")
    svg = io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None})
    data = base64.b64encode(svg.getvalue()).decode()
    return f'<img alt="The table as a plot" src="data:image/svg+xml;base64,{data}">\n'


def read(table):
    for line in table.splitlines():
        cache, right, _, work = (cell.strip() for cell in line.split("|")[1:5])
        measured = re.fullmatch(r"([\d.]+)% ± ([\d.]+)", right)
        if measured:
            yield cache, float(measured[1]), float(measured[2]), float(work)


def on_page_markdown(markdown, **_):
    def with_plot(match):
        rows = list(read(match[1]))
        return match[0] + (f"\n{draw(rows)}" if len(rows) >= LEAST else "")

    return TABLE.sub(with_plot, markdown)
