"""What the figures show, drawn on given axes: the page has a figure for each, the PNG all in one. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from granet.report.read import ReportedRun
from granet.training.records import EpochRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID = "#1f2430", "#697080", "#d8dce4"


def accuracy(axes: Axes, runs: Sequence[ReportedRun], colours: Sequence[str]) -> None:
    """Share of right answers, in percent."""
    thin = 1.0 if len(runs) <= 4 else 0.6
    for run, colour in zip(runs, colours, strict=True):
        _curve(axes, run, lambda record: 100 * record.train_accuracy, color=colour, linestyle=":", linewidth=thin)
        _curve(axes, run, lambda record: _percent(record.val_accuracy), color=colour, linestyle="--", linewidth=thin)
        _curve(axes, run, lambda record: 100 * record.test_accuracy, color=colour, linewidth=1.8 * thin)
    _by_epoch(axes, "accuracy (%)")
    _line_legend(axes, {"test": "-", "validation": "--", "train": ":"})


def loss(axes: Axes, runs: Sequence[ReportedRun], colours: Sequence[str]) -> None:
    """Mean training loss of each epoch."""
    for run, colour in zip(runs, colours, strict=True):
        _curve(axes, run, lambda record: record.train_loss, color=colour)
    _by_epoch(axes, "training loss")


def sparsity(axes: Axes, runs: Sequence[ReportedRun], colours: Sequence[str]) -> None:
    """Zeroed weights of all sparsified weights, and what the schedule asked for."""
    for run, colour in zip(runs, colours, strict=True):
        _curve(axes, run, lambda record: 100 * record.target_sparsity, color=colour, linestyle=":", linewidth=3)
        _curve(axes, run, lambda record: 100 * record.sparsity, color=colour)
    _by_epoch(axes, "sparsity (%)")
    axes.set_ylim(-3, 103)
    _line_legend(axes, {"achieved": "-", "asked": ":"})


def learning_rate(axes: Axes, runs: Sequence[ReportedRun], colours: Sequence[str]) -> None:
    """Of the last step of each epoch, on a logarithmic scale."""
    for run, colour in zip(runs, colours, strict=True):
        _curve(axes, run, lambda record: record.lr, color=colour, drawstyle="steps-pre")
    _by_epoch(axes, "learning rate")
    axes.set_yscale("log")


Draw = Callable[["Axes", Sequence[ReportedRun], Sequence[str]], None]
CURVES: dict[str, Draw] = {
    "Accuracy": accuracy,
    "Training loss": loss,
    "Sparsity": sparsity,
    "Learning rate": learning_rate,
}


def layer_bars(axes: Axes, runs: Sequence[ReportedRun], colours: Sequence[str]) -> None:
    """Sparsity of each layer at the end, the runs side by side; they must have the same layers."""
    names = [layer.name for layer in runs[0].layers]
    thickness = 0.8 / len(runs)
    for index, (run, colour) in enumerate(zip(runs, colours, strict=True)):
        places = [row - 0.4 + (index + 0.5) * thickness for row in range(len(names))]
        values = [100 * layer.sparsity for layer in run.layers]
        axes.barh(places, values, height=thickness, color=colour)
        if len(runs) <= 4:
            for place, value in zip(places, values, strict=True):
                axes.text(100.5, place, f"{value:.1f}", color=MUTED, va="center", fontsize=7)
    axes.set_yticks(range(len(names)), [plain(name) for name in names], fontsize=8)
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
    axes.set_yticks(range(len(rows)), [plain(layer.name) for layer in run.layers], fontsize=8)
    axes.set_xlabel("optimizer step of the mask update")
    axes.tick_params(length=0)
    figure: Any = axes.figure
    bar = figure.colorbar(
        image, ax=axes, label="active share (%), square-root scale", ticks=[0, 0.01, 0.1, 0.25, 0.5, 1]
    )
    bar.ax.set_yticklabels(["0", "1", "10", "25", "50", "100"])
    bar.outline.set_visible(False)


def plain(text: str) -> str:
    """`text` as matplotlib is to show it: a dollar is no formula."""
    return text.replace("$", r"\$")


def _curve(axes: Axes, run: ReportedRun, value: Callable[[EpochRecord], float], **style: Any) -> None:
    marker = "o" if len(run.records) == 1 else ""  # a line needs two points
    epochs = [record.epoch for record in run.records]
    axes.plot(epochs, [value(record) for record in run.records], marker=marker, markersize=4, **style)


def _percent(share: float | None) -> float:
    return math.nan if share is None else 100 * share


def _by_epoch(axes: Axes, ylabel: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel="epoch", ylabel=ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid()


def _line_legend(axes: Axes, lines: dict[str, Any]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=MUTED, linestyle=style, label=name) for name, style in lines.items()]
    axes.legend(handles=handles, loc="lower right", fontsize=8)
