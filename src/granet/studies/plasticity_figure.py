"""The figures of pruning plasticity as the paper draws them. Needs matplotlib.

One column for each pre-trained sparsity, one line for each pruning rate, vertical red lines where the learning rate
drops; without regeneration above, with regeneration below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from granet import drawing
from granet.studies.plasticity import REGENERATION, Study
from granet.studies.plasticity_results import Point, lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLES = {"plasticity": "Pruning plasticity", "final": "Final performance gap"}


def title(study: Study, measure: str, distribution: str) -> str:
    """What a figure shows, in words."""
    kind = {"weight": "weights", "filter": "filters"}.get(study.pattern, study.pattern)
    unit = "epoch" if study.continue_epochs == 1 else "epochs"
    how = f"{study.continue_epochs} {unit} on" if measure == "plasticity" else "trained to the end"
    return f"{TITLES[measure]}, {how}: {study.recipe.model} on {study.recipe.data}, {distribution} pruning of {kind}"


def size(study: Study) -> tuple[float, float]:
    """Inches."""
    return 1.2 + 2.7 * len(study.sparsities), 5.6


def paint(figure: Figure, study: Study, points: Sequence[Point], drops: Sequence[int]) -> None:
    """Draw the points of one measure and distribution on an empty figure."""
    from matplotlib.lines import Line2D

    grid = figure.subplots(2, len(study.sparsities), sharex=True, sharey=True, squeeze=False)
    shades = drawing.colours(len(study.rates))
    drawn = lines(study, points)
    for row, regeneration in zip(grid, REGENERATION, strict=True):
        for axes, sparsity in zip(row, study.sparsities, strict=True):
            _panel(axes, [drawn[sparsity, regeneration, rate] for rate in study.rates], shades, drops)
        row[0].set_ylabel(f"{regeneration} regeneration\naccuracy difference (points)")
    for axes, sparsity in zip(grid[0], study.sparsities, strict=True):
        axes.set_title(f"Pre-trained sparsity {sparsity:g}")
    for axes in grid[1]:
        axes.set_xlabel("pruned after epoch")
    handles = [Line2D([], [], color=shade, marker="o", markersize=3) for shade in shades]
    handles.append(Line2D([], [], color=DROP, linewidth=1))
    names = [f"pruning rate {rate:g}" for rate in study.rates] + ["learning rate drops"]
    figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), int(size(study)[0] / LEGEND)))


DROP = "#d64550"
LEGEND = 1.9
"""Inches that one name takes."""


def _panel(axes: Axes, drawn: Sequence[Mapping[int, float]], shades: Sequence[str], drops: Sequence[int]) -> None:
    for epoch in drops:
        axes.axvline(epoch, color=DROP, linewidth=1)
    axes.axhline(0, color="0.5", linewidth=0.8, linestyle="--")
    for line, shade in zip(drawn, shades, strict=True):
        axes.plot(list(line), list(line.values()), color=shade, marker="o", markersize=3)
    axes.grid()


def write_figure(
    study: Study,
    points: Sequence[Point],
    drops: Sequence[int],
    name: str,
    path: Path,
    endings: Sequence[str] = (".png", ".svg"),
) -> None:
    """One figure at `path` with each of these endings."""
    with drawing.figure(*size(study)) as figure:
        paint(figure, study, points, drops)
        figure.suptitle(name, x=0.01, horizontalalignment="left", wrap=True)
        for ending in endings:
            drawing.save(figure, path.with_suffix(ending))
