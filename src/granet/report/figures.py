"""The figures of a report as files: SVG that takes its colours from the page, and one PNG. Needs matplotlib."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from granet import drawing
from granet.report import draw
from granet.report.curves import curves_of
from granet.report.labels import ShownRun
from granet.report.words import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LETTERS = 150
"""How many letters fit into a line of a picture's legend; the mark beside each name takes the room of six."""
_THEME = {drawing.INK: "var(--ink)", drawing.MUTED: "var(--muted)", drawing.GRID: "var(--line)"}


def svg(paint: Callable[[Axes], None], size: tuple[float, float], name: str, description: str) -> str:
    """A figure of one pair of axes as an `<svg>` element to put into a page, where no other has its `name`."""
    return svg_figure(lambda figure: paint(figure.subplots()), size, name, description)


def svg_figure(paint: Callable[[Figure], None], size: tuple[float, float], name: str, description: str) -> str:
    """The same for a figure of any axes."""
    buffer = io.StringIO()
    with drawing.figure(*size) as figure, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # text stays text: the reader's fonts show it, not ours
        paint(figure)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # What is the figure's own in a file is the whole page's in a page: its style sheet and its ids.
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", text)
    for colour, variable in _THEME.items():
        text = text.replace(colour, variable)
    box = re.search(r'viewBox="[^"]*"', text)
    opening = f'<svg {box[0] if box else ""} role="img" aria-label="{escape(description)}">'
    return opening + text[text.index(">") + 1 :]


def png(runs: Sequence[ShownRun]) -> bytes:
    """The curves, and below them the layers' bars of the runs that have the same layers."""
    from matplotlib.lines import Line2D

    groups = draw.same_layers(runs)
    curves = curves_of(runs)
    above = [3.0] * -(-len(curves) // 2)  # two side by side
    heights = [*above, *map(draw.bars_height, groups)]
    columns = max(1, min(3, len(runs), LETTERS // (max(len(run.name) for run in runs) + 6)))
    legend = 0.4 + 0.25 * -(-len(runs) // columns)
    with drawing.figure(11, sum(heights) + legend) as figure:
        grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
        for index, curve in enumerate(curves):
            axes = figure.add_subplot(grid[divmod(index, 2)])
            curve.paint(axes, runs)
            axes.set_title(curve.title)
        for row, group in enumerate(groups, start=len(above)):
            axes = figure.add_subplot(grid[row, :])
            draw.layer_bars(axes, group)
            axes.set_title(draw.plain(f"Sparsity of the layers of {group[0].recipe.model}"))
        handles = [Line2D([], [], color=run.colour) for run in runs]
        told = [draw.plain(short(run.name, LETTERS - 6)) for run in runs]
        figure.legend(handles, told, loc="outside upper left", ncols=columns)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=120, facecolor="white")
    return buffer.getvalue()
