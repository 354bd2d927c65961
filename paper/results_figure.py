"""Tables as figures: accuracy against sparsity, and against FLOPs. Needs matplotlib."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from granet import drawing
from paper.arrangement import arranged, measured
from paper.compare import Comparison
from paper.wording import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Paint = Callable[["Axes"], None]

MARGIN = 0.2
"""How many accuracy points beyond our own results a panel shows, at least."""
FAR = 10.0
"""A run this many points below the median broke down: it is written at the edge, not drawn to scale."""


def against_sparsity(comparisons: Sequence[Comparison], path: Path) -> None:
    """A panel for each network and data set: ours as solid lines, the paper's dashed; a colour for each row.

    Rows that the paper did not run itself are thin: other works' numbers, and other readings of its own rows. Where
    only the dense network was run there is a panel only if there is no other.
    """
    done = dict.fromkeys(one.cell.row for one in comparisons if one.last and one.cell.sparsity > 0)
    colours = dict(zip(done, drawing.colours(len(done)), strict=True))
    parts = list(measured(comparisons).values())
    sparse = [part for part in parts if any(one.last and one.cell.sparsity > 0 for one in part)]
    _draw([partial(_sparsities, part=part, colours=colours) for part in sparse or parts], path)


def against_flops(comparisons: Sequence[Comparison], path: Path) -> None:
    """Accuracy, with its standard error, against what inference and training take; a colour for each row."""
    known = [one for one in comparisons if one.last]
    rows = list(dict.fromkeys(one.cell.row for one in known if one.cell.sparsity > 0))
    colours = dict(zip(rows, drawing.colours(len(rows)), strict=True))
    _draw(
        [
            lambda axes: _costs(axes, known, colours, "inference", lambda one: one.test_flops),
            lambda axes: _costs(axes, known, colours, "training", lambda one: one.train_flops),
        ],
        path,
    )


def _draw(panels: Sequence[Paint], path: Path) -> None:
    """The panels in rows of two, and one legend for all of them at the side."""
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    named: dict[str, Any] = {}
    with drawing.figure(5 * columns + 2.5, 3.6 * rows) as figure:
        for place, paint in enumerate(panels, start=1):
            axes = figure.add_subplot(rows, columns, place)
            paint(axes)
            axes.grid()
            handles, labels = axes.get_legend_handles_labels()
            named |= dict(zip(labels, handles, strict=True))
        figure.legend(list(named.values()), list(named), loc="outside right upper")
        drawing.save(figure, path)


def _sparsities(axes: Axes, part: Sequence[Comparison], colours: Mapping[str, str]) -> None:
    dense, columns, rows = arranged(part)
    places = range(len(columns))
    _ours(axes, rows, [] if dense is None else [dense], colours)
    low, high = axes.dataLim.intervaly  # of ours: far-off numbers of the paper are cut off
    margin = MARGIN + (high - low) / 20
    drawn = set()
    for name, cells in rows.items():
        printed = tuple(one.cell.accuracy for one in cells)
        if any(one.last for one in cells) and printed not in drawn:  # two readings of one row have the same
            drawn.add(printed)
            known = [math.nan if accuracy is None else accuracy for accuracy in printed]
            axes.plot(places, known, "x--", color=colours[name], alpha=0.5, linewidth=_width(cells))
    compared = any(one.cell.accuracy is not None for one in part)
    axes.set_title(f"{_place(part)}: ours (lines), the paper's (dashed)" if compared else _place(part))
    _scale(axes, columns, low - margin, high + margin)


def _ours(
    axes: Axes, rows: Mapping[str, Sequence[Comparison]], dense: Sequence[Comparison], colours: Mapping[str, str]
) -> None:
    """A line for each row that was run; runs that broke down are written at the bottom."""
    usual = statistics.median(statistics.mean(one.last) for one in [*dense, *chain(*rows.values())] if one.last)
    broken: dict[int, list[str]] = {}
    for name, cells in rows.items():
        known = {place: statistics.mean(one.last) for place, one in enumerate(cells) if one.last}
        drawn = {place: accuracy for place, accuracy in known.items() if accuracy > usual - FAR}
        if known:
            points, heights = list(drawn), list(drawn.values())
            axes.plot(points, heights, "o-", color=colours[name], label=name, linewidth=_width(cells))
        for place in known.keys() - drawn.keys():
            broken.setdefault(place, []).append(f"{name}: {known[place]:.1f} \N{DOWNWARDS ARROW}")
    for place, lines in broken.items():
        axes.text(place, 0.02, "\n".join(lines), transform=axes.get_xaxis_transform(), ha="right", fontsize="small")
    for one in dense:
        if one.last:
            axes.axhline(statistics.mean(one.last), color=drawing.MUTED, linewidth=1, label="Dense")


def _width(row: Sequence[Comparison]) -> float:
    return 0.7 if any(one.cell.accuracy is not None and one.cell.own_std is None for one in row) else 2.0


def _place(part: Sequence[Comparison]) -> str:
    return f"{NAMES[part[0].cell.model]} on {NAMES[part[0].cell.data]}"


def _scale(axes: Axes, columns: Sequence[float], low: float, high: float) -> None:
    axes.set(xlabel="sparsity", ylabel="test accuracy, last epoch (%)", ylim=(low, high))
    axes.set_xticks(range(len(columns)), [f"{column:.0%}" for column in columns])


def _costs(
    axes: Axes,
    known: Sequence[Comparison],
    colours: Mapping[str, str],
    what: str,
    flops: Callable[[Comparison], Sequence[float]],
) -> None:
    marks = dict(zip(sorted({one.cell.sparsity for one in known}), "_osD^v", strict=False))
    for one in known:
        accuracy = statistics.mean(one.last)
        if one.cell.sparsity == 0:
            style = "-" if one.cell.row == "Dense" else "--"
            axes.axhline(accuracy, color=drawing.MUTED, linewidth=1, linestyle=style, label=one.cell.row)
        elif flops(one):
            axes.errorbar(
                statistics.mean(flops(one)),
                accuracy,
                yerr=one.standard_error,
                fmt=marks[one.cell.sparsity],
                color=colours[one.cell.row],
                label=f"{one.cell.row}, {one.cell.sparsity:.0%}",
            )
    axes.set(xlabel=f"FLOPs of {what}, dense = 1", ylabel="test accuracy, last epoch (%)")
