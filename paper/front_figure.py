"""The figure of the README: GraNet, what it is compared with first, and the paper's numbers. Needs matplotlib."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granet import drawing
from paper.arrangement import arranged, measured
from paper.compare import Comparison
from paper.front_table import METHODS
from paper.wording import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

APART = 0.09
"""Between the points of two rows at one sparsity, so that none hides another's error."""
SPAN: Any = {"color": drawing.MUTED, "alpha": 0.2, "linewidth": 0}
OURS: Any = {"fmt": "o-", "markersize": 4.5, "capsize": 2.5}
PAPERS: Any = {"linestyle": "--", "marker": "o", "markersize": 4.5, "markerfacecolor": "white", "linewidth": 1}


def front_figure(comparisons: Sequence[Comparison], path: Path) -> None:
    """A panel for each network and data set, a colour for each method; standard errors where several seeds were run."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    parts = list(measured(comparisons).values())
    colours = drawing.colours(len(METHODS))
    with drawing.figure(7, 0.7 + 2.6 * -(-len(parts) // 2)) as figure:
        grid = figure.subplots(-(-len(parts) // 2), 2, squeeze=False)
        for axes, part in zip(grid.flat, parts, strict=False):
            _panel(axes, part, colours)
        for axes in grid.flat[len(parts) :]:
            axes.remove()
        for axes in grid[:, 0]:
            axes.set_ylabel("test accuracy (%)")
        for axes in grid[-1]:
            axes.set_xlabel("sparsity")
        marks: list[Any] = [Line2D([], [], color=colour) for colour in (*colours, drawing.MUTED)]
        marks += [Patch(**SPAN), Line2D([], [], color=drawing.INK, marker="o", markersize=4.5)]
        marks += [Line2D([], [], color=drawing.INK, **PAPERS)]
        told = [*METHODS, "Dense", "± standard error", "ours", "the paper's"]
        figure.legend(marks, told, loc="outside upper center", ncols=4)
        drawing.save(figure, path, dpi=200)


def _panel(axes: Axes, part: Sequence[Comparison], colours: Sequence[str]) -> None:
    dense, columns, rows = arranged(part)
    for number, (name, colour) in enumerate(zip(METHODS, colours, strict=True)):
        cells = rows.get(name, [])
        places = [place + APART * (number - (len(METHODS) - 1) / 2) for place in range(len(cells))]
        printed = [(at, one.cell.accuracy) for at, one in zip(places, cells, strict=True)]
        axes.plot(*zip(*printed, strict=True), color=colour, **PAPERS)
        ours = [(at, statistics.mean(one.last), _error(one)) for at, one in zip(places, cells, strict=True) if one.last]
        if ours:
            at, heights, errors = zip(*ours, strict=True)
            axes.errorbar(at, heights, errors, color=colour, **OURS)
    if dense is not None and dense.last:
        height, error = statistics.mean(dense.last), _error(dense)
        axes.axhline(height, color=drawing.MUTED, linewidth=1.2)
        axes.axhspan(height - error, height + error, **SPAN)
    if dense is not None and dense.cell.accuracy is not None:
        axes.axhline(dense.cell.accuracy, color=drawing.MUTED, linewidth=1, linestyle="--")
    axes.set_title(f"{NAMES[part[0].cell.model]} on {NAMES[part[0].cell.data]}")
    axes.set_xticks(range(len(columns)), [f"{column:.0%}" for column in columns])
    axes.grid(axis="y")


def _error(one: Comparison) -> float:
    """The standard error of our mean; a single run is drawn without one."""
    return (one.own_error or 0.0) if len(one.last) > 1 else 0.0
