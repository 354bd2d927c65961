"""The figures of layers, drawn on given axes, and what figures of a report share. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from granet.drawing import MUTED
from granet.report.labels import ShownRun
from granet.report.read import ReportedRun
from granet.report.words import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL = (4.6, 3.0)
"""Inches of a figure that stands beside others."""
ABOVE: Any = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 4, "borderaxespad": 0}
"""Where a legend hides nothing."""
SHARES = {0: "0", 0.01: "1", 0.1: "10", 0.25: "25", 0.5: "50", 1: "100"}  # ticks of a square-root scale, in percent


def same_layers(runs: Sequence[ShownRun]) -> list[list[ShownRun]]:
    """The runs that have sparse layers, those with the same layers together."""
    groups: dict[tuple[tuple[str, int], ...], list[ShownRun]] = {}
    for run in runs:
        if run.layers:
            groups.setdefault(tuple((layer.name, layer.weights) for layer in run.layers), []).append(run)
    return list(groups.values())


def layer_bars(axes: Axes, runs: Sequence[ShownRun]) -> None:
    """Sparsity of each layer at the end, the runs side by side; they must have the same layers."""
    names = [layer.name for layer in runs[0].layers]
    thickness = 0.8 / len(runs)
    for index, run in enumerate(runs):
        places = [row - 0.4 + (index + 0.5) * thickness for row in range(len(names))]
        values = [100 * layer.sparsity for layer in run.layers]
        axes.barh(places, values, height=thickness, color=run.colour)
        if len(runs) <= 4:
            for place, value in zip(places, values, strict=True):
                axes.text(100.5, place, f"{value:.1f}", color=MUTED, va="center", fontsize=7)
    axes.set_yticks(range(len(names)), [plain(short(name)) for name in names], fontsize=8)
    axes.set(xlabel="sparsity (%)", xlim=(0, 100), ylim=(len(names) - 0.5, -0.5))
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)


def bars_height(runs: Sequence[ReportedRun]) -> float:
    """Inches that `layer_bars` wants."""
    return 0.7 + len(runs[0].layers) * max(0.22, 0.13 * len(runs))


def layer_density(axes: Axes, run: ReportedRun) -> None:
    """Active share of each layer (rows) after each mask update (columns), as a heat map."""
    from matplotlib.colors import PowerNorm

    rows = [[update.active[index] / layer.weights for update in run.updates] for index, layer in enumerate(run.layers)]
    image = axes.imshow(rows, aspect="auto", interpolation="nearest", cmap="viridis", norm=PowerNorm(0.5, 0, 1))
    shown = sorted({round(place * (len(run.updates) - 1) / 5) for place in range(6)})
    axes.set_xticks(shown, [f"{run.updates[place].step:,}" for place in shown], fontsize=8)
    axes.set_yticks(range(len(rows)), [plain(short(layer.name)) for layer in run.layers], fontsize=8)
    axes.set_xlabel("optimizer step of the mask update")
    axes.tick_params(length=0)
    figure: Any = axes.figure
    bar = figure.colorbar(image, ax=axes, label="active (%)", ticks=list(SHARES))
    bar.ax.set_yticklabels(list(SHARES.values()))
    bar.outline.set_visible(False)


def layer_budget(axes: Axes, run: ShownRun, fixed: Mapping[str, Sequence[int]]) -> None:
    """Density of each layer at the end, as a dot, beside those that `fixed` distributions would give it."""
    rows = range(len(run.layers))
    learned = [layer.active for layer in run.layers]
    styles: list[dict[str, Any]] = [  # where they coincide, each is still seen
        {"marker": "D", "markersize": 7.5, "markerfacecolor": "none", "markeredgecolor": MUTED},
        {"marker": "|", "markersize": 11, "markeredgecolor": MUTED, "markeredgewidth": 1.6},
        {"marker": "o", "markersize": 5.5, "color": run.colour},
    ]
    for (label, active), style in zip([*fixed.items(), ("this run", learned)], styles, strict=True):
        shares = [count / layer.weights for count, layer in zip(active, run.layers, strict=True)]
        axes.plot(shares, rows, linestyle="none", label=label, clip_on=False, zorder=3, **style)
    axes.set_xscale("function", functions=(_root, _square))
    axes.set_xticks(list(SHARES), list(SHARES.values()), fontsize=8)
    axes.set_yticks(rows, [plain(short(layer.name)) for layer in run.layers], fontsize=8)
    axes.set(xlabel="active share (%), square-root scale", xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5))
    axes.grid()
    axes.tick_params(axis="y", length=0, pad=7)  # a dot at 0 keeps off the names
    figure: Any = axes.figure
    figure.legend(loc="outside upper left", ncols=len(styles), fontsize=8)


def rows_height(run: ReportedRun) -> float:
    """Inches that `layer_density` and `layer_budget` want."""
    return max(1.9, 1.0 + 0.24 * len(run.layers))


def plain(text: str) -> str:
    """`text` as matplotlib is to show it: a dollar is no formula."""
    return text.replace("$", r"\$")


def line_legend(axes: Axes, lines: Mapping[str, Any]) -> None:
    """What kinds of lines mean; their colours are the runs'."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=MUTED, linestyle=style, label=name) for name, style in lines.items()]
    axes.legend(handles=handles, fontsize=8, **ABOVE)


def _root(values: Any) -> Any:
    return np.sqrt(np.maximum(values, 0))  # matplotlib tries the scale beyond its limits


def _square(values: Any) -> Any:
    return np.square(values)
